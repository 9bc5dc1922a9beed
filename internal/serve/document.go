package serve

import (
	"net/http"

	"spillway/internal/apistatus"
	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/plan"
)

// gzipThreshold is how large a body must be for upstream to compress it (W-6).
const gzipThreshold = 128 << 10

// maxText bounds the lists that are made for people to read, which takes a tree of the whole.
// Upstream makes the larger ones.
const maxText = 8 << 20

// textual reports that the answer is for people to read.
func textual(f plan.AnswerForm) bool { return f.Format == object.YAML || f.Pretty }

// textOf makes such an answer of a JSON document.
func textOf(f plan.AnswerForm, document []byte) ([]byte, error) {
	if f.Format == object.YAML {
		return codec.YAML(document)
	}
	return codec.Indent(document)
}

// begin counts an answer from memory, and sets what the source has to say on it.
func (s *Server) begin(w apistatus.Responder, p answering, verb string) {
	s.metrics.answered(p.Plan, verb)
	p.headers(w.SetHeader)
}

// compresses reports whether a document of size bytes is to be compressed.
func compresses(f plan.AnswerForm, size int) bool { return f.Gzip && size > gzipThreshold }

// writeDocument answers with a document.
func writeDocument(w apistatus.Responder, p plan.Plan, document []byte) {
	compressed := compresses(p.AnswerForm, len(document))
	if compressed {
		document = codec.AppendMember(nil, document)
	}
	documentHeaders(w, p, compressed)
	w.Send(http.StatusOK, document)
}

// documentHeaders begins the answer with a document.
func documentHeaders(w apistatus.Responder, p plan.Plan, compressed bool) {
	apistatus.SetCommonHeaders(w, p.MediaType())
	if compressed {
		w.SetHeader("Content-Encoding", "gzip")
		w.SetHeader("Vary", "Accept-Encoding")
	}
}
