package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// decoder knows every kind that an API server sends in protobuf by default.
var decoder = func() runtime.Decoder {
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
	utilruntime.Must(apiextensionsv1.AddToScheme(known))
	utilruntime.Must(metav1.AddMetaToScheme(known))
	utilruntime.Must(metav1beta1.AddMetaToScheme(known))
	return serializer.NewCodecFactory(known).UniversalDeserializer()
}()

// readable is the body of an answer as text: what came in protobuf is decoded and printed as JSON,
// because fields may be encoded in any order; a watch becomes the lines that it is in JSON.
func (a *Answer) readable() ([]byte, error) {
	switch kind := a.Header.Get("Content-Type"); {
	case a.text || !strings.HasPrefix(kind, protobufType):
		return a.Body, nil
	case strings.Contains(kind, "stream=watch"):
		return decodeFrames(a.Body)
	}
	return decodeDocument(a.Body)
}

// decodeDocument prints one object (W-133).
func decodeDocument(body []byte) ([]byte, error) {
	o, _, err := decoder.Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("a document in protobuf: %w", err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("printing what came in protobuf: %w", err)
	}
	return append(text, '\n'), nil
}

// decodeFrames prints the events of a watch (W-132). A frame that was cut short is an error.
func decodeFrames(body []byte) ([]byte, error) {
	frames := protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(bytes.NewReader(body)))
	frame := make([]byte, len(body)) // none is longer than all of them
	var lines []byte
	for {
		n, err := frames.Read(frame)
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, fmt.Errorf("a frame in protobuf: %w", err)
		}
		line, err := DecodeFrame(frame[:n])
		if err != nil {
			return nil, err
		}
		lines = append(lines, line...)
	}
}

// DecodeFrame prints an event of a watch in protobuf, without its length, as a line of JSON.
func DecodeFrame(frame []byte) ([]byte, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return nil, fmt.Errorf("a frame in protobuf: %w", err)
	}
	object, err := decodeDocument(e.Object.Raw)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", e.Type, bytes.TrimSpace(object)), nil
}
