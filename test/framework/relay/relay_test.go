package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// upstream answers with the request's path and query, as they came.
func upstream(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// ask sends a GET through a relay.
func ask(t *testing.T, r *Relay, target, agent string) (string, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	client.Timeout = 10 * time.Second
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Config.Host+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", agent)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestARequestPassesAsItCame(t *testing.T) {
	r := New(t, upstream(t), new(Answers).Lateness)
	const target = "/a%2Fb//c?x=1;y=2&&z=%zz"
	if got, err := ask(t, r, target, "client/1 probe"); got != target || err != nil || r.Late() != 0 {
		t.Errorf("%q, %v, %d late", got, err, r.Late())
	}
}

func TestOnlyQuestionsAreLate(t *testing.T) {
	for agent, want := range map[string]int64{
		"spillway/1 probe": 1, "spillway/1 backfill": 1, "spillway/1 check": 1, "spillway/1": 0, "kubectl/1 probe": 0,
	} {
		var answers Answers
		if err := answers.Set("1ms"); err != nil {
			t.Fatal(err)
		}
		r := New(t, upstream(t), answers.Lateness)
		if got, err := ask(t, r, "/", agent); got != "/" || err != nil || r.Late() != want {
			t.Errorf("%s: %q, %v, %d late, want %d", agent, got, err, r.Late(), want)
		}
	}
}

// TestAQuestionWithoutAnswerIsHeldUntilItsClientGivesUp needs the client's patience to end it.
func TestAQuestionWithoutAnswerIsHeldUntilItsClientGivesUp(t *testing.T) {
	var answers Answers
	if err := answers.Set(Never); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	r := New(t, upstream(t), func(r *http.Request) Lateness {
		defer close(held)
		return answers.Lateness(r)
	})
	client, err := rest.HTTPClientFor(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", "spillway/1 probe")
	failed := make(chan error, 1)
	client.Timeout = 100 * time.Millisecond
	go func() {
		_, err := client.Do(request)
		failed <- err
	}()
	<-held
	if err := <-failed; err == nil {
		t.Error("it was answered")
	}
}

func TestLateRunsKeepTheirOrder(t *testing.T) {
	var runs atomic.Int64
	r := New(t, upstream(t), func(*http.Request) Lateness {
		return Lateness{Runs: func() time.Duration { runs.Add(1); return time.Millisecond }}
	})
	if got, err := ask(t, r, "/x", "any"); got != "/x" || err != nil || runs.Load() == 0 {
		t.Errorf("%q, %v, %d late runs", got, err, runs.Load())
	}
}

func TestAnswersAreATimeOrRandomOrNever(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "0": true, "700ms": true, "random": true, "never": true, "soon": false, "-1s": false,
	} {
		var a Answers
		if err := a.Set(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
		if prompt := text == "" || text == "0"; want && a.Prompt() != prompt {
			t.Errorf("%q is prompt: %t", text, a.Prompt())
		}
	}
}
