package fakeapiserver

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// form is how an object is shown: whole, or its metadata only (W-45). Everything is JSON here.
type form struct {
	partial string // apiVersion of PartialObjectMetadata, or "" for the whole object
}

func (f form) object(o *Obj) []byte { return f.raw(o.Raw) }

func (f form) raw(raw []byte) []byte {
	if f.partial == "" {
		return raw
	}
	return partial(raw, f.partial)
}

// clauses are the elements of Accept, in the order that kube-apiserver's own parser prefers (W-42).
func clauses(r *http.Request) []goautoneg.Accept {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		header = "*/*"
	}
	return goautoneg.ParseAccept(header)
}

// isJSON reports that JSON satisfies an element of Accept.
func isJSON(c goautoneg.Accept) bool {
	return slices.Contains([]string{"application/json", "application/*", "*/*"}, c.Type+"/"+c.SubType)
}

// negotiate picks the form of an answer. list says that the request is for a collection: transforms
// must fit (W-44).
func negotiate(r *http.Request, list, watch bool) (form, error) {
	for _, c := range clauses(r) {
		if stream := c.Params["stream"]; !isJSON(c) || stream != "" && stream != "watch" {
			continue
		}
		as, v := c.Params["as"], c.Params["v"]
		if as == "" && c.Params["g"] == "" && v == "" {
			return form{}, nil
		}
		if c.Params["g"] != metav1.GroupName || v != "v1" && v != "v1beta1" {
			continue
		}
		if as == "PartialObjectMetadata" && (!list || watch) || as == "PartialObjectMetadataList" && list && !watch {
			return form{partial: metav1.GroupName + "/" + v}, nil
		}
	}
	types := "application/json"
	if watch {
		types += ";stream=watch"
	}
	return form{}, failed(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+types, nil)
}

func acceptsJSON(r *http.Request) bool {
	return slices.ContainsFunc(clauses(r), func(c goautoneg.Accept) bool { return c.Params["as"] == "" && isJSON(c) })
}

// pretty reports whether the answer is indented (W-9).
func pretty(r *http.Request) bool {
	if slices.ContainsFunc(clauses(r), func(c goautoneg.Accept) bool { return c.Params["pretty"] == "1" }) {
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

// gzipAbove is the size from which GET and LIST are compressed (W-6).
const gzipAbove = 128 << 10

// acceptsGzip reads Accept-Encoding as kube-apiserver does: an element must be exactly gzip (W-6).
func (s *Server) acceptsGzip(r *http.Request) bool {
	return !s.opts.NoGzip && slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(e string) bool {
		return strings.TrimSpace(e) == "gzip"
	})
}

// respond writes a complete body (W-5, W-6, W-8, W-9).
func (s *Server) respond(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	if pretty(r) {
		body = indented(body)
	} else {
		body = append(slices.Clip(body), '\n') // body may be shared
	}
	w.Header().Set("Content-Type", "application/json")
	if len(body) <= gzipAbove || !s.acceptsGzip(r) {
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
