package rig

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// etcd is the little of etcd's API that is needed here, spoken as gRPC over HTTP/2 without TLS.
type etcd struct {
	client *http.Client
	url    string
}

// etcd is the one under both kube-apiservers.
func (p *Pair) etcd() (*etcd, error) {
	const listens = "--listen-client-urls="
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.ControlPlane.Etcd().Pid()))
	if err != nil {
		return nil, err
	}
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if url, found := strings.CutPrefix(arg, listens); found {
			return &etcd{&http.Client{Transport: clearHTTP2()}, url}, nil
		}
	}
	return nil, errors.New("etcd's command line does not tell where it listens")
}

func clearHTTP2() *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

// get reads the value of a key.
func (e *etcd) get(ctx context.Context, key string) ([]byte, error) {
	const kvs, value = 2, 5 // of etcdserverpb.RangeResponse, and of a mvccpb.KeyValue in it
	answer, err := e.call(ctx, "Range", member(nil, 1, []byte(key)))
	if err != nil {
		return nil, err
	}
	pair, err := memberOf(answer, kvs)
	if err != nil {
		return nil, fmt.Errorf("etcd on %s: %w", key, err)
	}
	return memberOf(pair, value)
}

// put writes the value of a key.
func (e *etcd) put(ctx context.Context, key string, value []byte) error {
	_, err := e.call(ctx, "Put", member(member(nil, 1, []byte(key)), 2, value))
	return err
}

// call is one unary call of etcdserverpb.KV.
func (e *etcd) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	const head = 5 // of a message: a flag, and the length
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/etcdserverpb.KV/"+method,
		bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := e.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if status := response.Trailer.Get("Grpc-Status"); status != "0" || len(answer) < head {
		return nil, fmt.Errorf("etcd answers %s with %s, gRPC status %q: %s", method, response.Status, status,
			response.Trailer.Get("Grpc-Message"))
	}
	return answer[head:], nil
}

// member adds a member of a protobuf message.
func member(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

// memberOf is the first member of a protobuf message with a number.
func memberOf(message []byte, number protowire.Number) ([]byte, error) {
	for len(message) > 0 {
		at, kind, head := protowire.ConsumeTag(message)
		if head < 0 {
			return nil, protowire.ParseError(head)
		}
		value := protowire.ConsumeFieldValue(at, kind, message[head:])
		if value < 0 {
			return nil, protowire.ParseError(value)
		}
		if at == number && kind == protowire.BytesType {
			found, _ := protowire.ConsumeBytes(message[head:])
			return found, nil
		}
		message = message[head+value:]
	}
	return nil, fmt.Errorf("no member %d", number)
}
