package serve

import (
	"net/http"

	"spillway/internal/codec"
	"spillway/internal/object"
)

// gzipThreshold is how large a body must be for upstream to compress it (W-6).
const gzipThreshold = 128 << 10

// maxText bounds the lists that are made for people to read, which takes a tree of the whole. Upstream makes the larger ones.
const maxText = 8 << 20

// textual reports that the answer is for people to read.
func (f answerForm) textual() bool { return f.Format == object.YAML || f.Pretty }

// readable makes such an answer of a JSON document.
func (f answerForm) readable(document []byte) ([]byte, error) {
	if f.Format == object.YAML {
		return codec.YAML(document)
	}
	return codec.Indent(document)
}

// begin counts an answer from memory, and has the source's say on it.
func (s *Server) begin(w responder, p Plan, verb string) {
	s.metrics.answered(p, verb)
	p.Source.warn(w.header)
}

// writeDocument answers with a document.
func writeDocument(w responder, p Plan, document []byte) {
	if documentHeaders(w, p, len(document)) {
		document = codec.AppendMember(nil, document)
	}
	w.send(http.StatusOK, document)
}

// writeList answers with a list, which is spliced while it is written.
func writeList(w responder, p Plan, list *codec.List) {
	if documentHeaders(w, p, list.Size()) {
		compressed := list.Compress()
		w.stream(http.StatusOK, compressed, int64(compressed.Size()))
		return
	}
	w.stream(http.StatusOK, list, int64(list.Size()))
}

// documentHeaders begins the answer with a document of size bytes, and reports whether it is to be compressed.
func documentHeaders(w responder, p Plan, size int) (compress bool) {
	answerHeaders(w, p.MediaType())
	if !p.Gzip || size <= gzipThreshold {
		return false
	}
	w.header("Content-Encoding", "gzip")
	w.header("Vary", "Accept-Encoding")
	return true
}
