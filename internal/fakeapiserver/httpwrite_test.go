package fakeapiserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// send sends one request with a body, and returns the status and the body of the answer.
func send(t *testing.T, s *Server, method, path, contentType, body string) (int, string) {
	t.Helper()
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	r, err := http.NewRequestWithContext(deadline(t), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestAClientCreatesAndDeletesAnObject(t *testing.T) {
	s := server(t, Options{Writes: true})
	const pods = "/api/v1/namespaces/n/pods"
	w := watch(t, s, pods+"?watch=1&resourceVersion=1")
	code, body := send(t, s, "POST", pods, "application/json", `{"metadata":{"name":"a","labels":{"x":"y"}}}`)
	if code != http.StatusCreated || !strings.Contains(body, `"labels":{"x":"y"}`) || !strings.Contains(body, `"uid":"`) {
		t.Errorf("POST: %d %s", code, body)
	}
	expect(t, w, "ADDED n/a 2")
	code, body = send(t, s, "DELETE", pods+"/a", "", "")
	if code != http.StatusOK || !strings.Contains(body, `"status":"Success"`) {
		t.Errorf("DELETE: %d %s", code, body)
	}
	expect(t, w, "DELETED n/a 3")
}

func TestWritesThatAreRefused(t *testing.T) {
	s := server(t, Options{Writes: true})
	s.Create(Pods, "n", "there")
	const pods = "/api/v1/namespaces/n/pods"
	for _, c := range []struct {
		name, method, path, contentType, body string
		code                                  int
	}{
		{"an object that exists", "POST", pods, "application/json", `{"metadata":{"name":"there"}}`, 409},
		{"no name", "POST", pods, "application/json", `{"metadata":{}}`, 422},
		{"another namespace", "POST", pods, "application/json", `{"metadata":{"name":"a","namespace":"m"}}`, 400},
		{"no JSON", "POST", pods, "application/json", `{`, 400},
		{"no object", "POST", pods, "application/json", `null`, 400},
		{"a field of another type", "POST", pods, "application/json", `{"metadata":{"name":"a"},"spec":7}`, 400},
		{"a form, as curl sends by default", "POST", pods, "application/x-www-form-urlencoded", `{}`, 415},
		{"a pod in no namespace", "POST", "/api/v1/pods", "application/json", `{"metadata":{"name":"a"}}`, 405},
		{"a subresource", "POST", pods + "/there/status", "application/json", `{}`, 405},
		{"a change", "PATCH", pods + "/there", "application/merge-patch+json", `{}`, 405},
		{"the deletion of what does not exist", "DELETE", pods + "/absent", "", "", 404},
		{"the deletion of all", "DELETE", pods, "", "", 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, body := send(t, s, c.method, c.path, c.contentType, c.body); code != c.code {
				t.Errorf("got %d, want %d: %s", code, c.code, body)
			}
		})
	}
	if rv := s.Revision(); rv != 2 {
		t.Errorf("a refused write was stored: revision %d", rv)
	}
}
