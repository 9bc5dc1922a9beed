package fakeapiserver

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/munnerz/goautoneg"
)

// setCommonHeaders sets the headers of every answer (W-3).
func setCommonHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	id := r.Header.Get("Audit-Id")
	if id == "" {
		id = uuid.NewString()
	}
	h.Set("Audit-Id", id)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Kubernetes-Pf-Flowschema-Uid", "a22ae54e-242e-4519-9662-9c709e88763b")
	h.Set("X-Kubernetes-Pf-Prioritylevel-Uid", "bae19c55-8562-4445-ab81-8eb25b15fc26")
}

// gzipAboveBytes is the size from which GET and LIST are compressed (W-6).
const gzipAboveBytes = 128 << 10

// respond writes a complete body (W-5, W-6, W-8, W-9).
func (s *Server) respond(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	if isPretty(r) {
		body = indented(body)
	} else {
		body = append(slices.Clip(body), '\n') // body may be shared
	}
	w.Header().Set("Content-Type", "application/json")
	if len(body) <= gzipAboveBytes || !acceptsGzip(r) {
		w.WriteHeader(code)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is legal
	_, _ = z.Write(body)
	_ = z.Close()
}

// acceptsGzip reads Accept-Encoding as kube-apiserver does: an element must be exactly gzip (W-6).
func acceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(e string) bool {
		return strings.TrimSpace(e) == "gzip"
	})
}

// isPretty reports that the answer is indented (W-9).
func isPretty(r *http.Request) bool {
	if slices.ContainsFunc(acceptClauses(r), func(c goautoneg.Accept) bool { return c.Params["pretty"] == "1" }) {
		return true
	}
	if q := r.URL.Query().Get("pretty"); q != "" {
		on, err := strconv.ParseBool(q)
		return err == nil && on
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

func indented(raw []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		panic("BUG: answer is not JSON: " + err.Error())
	}
	return out.Bytes()
}

func writePlain(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// writeError answers with what an error says: a Status, or the text of the two errors that are
// none. A client that accepts no plain JSON gets the Status indented (W-10).
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errPageNotFound):
		w.Header().Set("X-Content-Type-Options", "nosniff")
		writePlain(w, http.StatusNotFound, err.Error())
		return
	case errors.Is(err, errRequestTimeout):
		writePlain(w, http.StatusGatewayTimeout, err.Error())
		return
	}
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	body := mustJSON(status)
	if !acceptsJSON(r) || isPretty(r) {
		body = indented(body)
	} else {
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", "application/json")
	if status.Code == http.StatusForbidden {
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}
