package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

// requests sends bad requests to both sides and compares the answers byte for byte.
func requests(ctx context.Context, cp *controlplane.ControlPlane, r *rig.Report) error {
	p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=pods")
	if err != nil {
		return err
	}
	defer p.Kill()
	direct, err := rest.HTTPClientFor(cp.Config(controlplane.Admin))
	if err != nil {
		return err
	}
	for _, query := range []string{
		"resourceVersion=abc", "resourceVersion=abc&watch=true", "resourceVersion=-1",
		"resourceVersion=1&resourceVersionMatch=Sometimes",
		"limit=many", "labelSelector=%21%21", "fieldSelector=spec.nothing%3D1", "continue=nonsense",
		"watch=true&sendInitialEvents=true",
		"resourceVersion=99999999999999999999", "timeoutSeconds=soon&watch=true",
	} {
		path := "/api/v1/namespaces/default/pods?" + query
		want, err := answer(ctx, direct, cp.URL()+path)
		if err != nil {
			return err
		}
		got, err := answer(ctx, http.DefaultClient, p.URL+path)
		if err != nil {
			return err
		}
		r.Check(got == want && strings.Count(strings.TrimSpace(got.body), "\n") == 0 && want.code >= 400, "GET pods?"+query,
			"%s", compared(got, want))
	}
	r.Check(p.Log.Count("goroutine ") == 0 && p.Log.Levels()["error"] == 0, "the proxy's own log", "levels %v",
		p.Log.Levels())
	return nil
}

// reply is what a client sees of an answer.
type reply struct {
	code              int
	contentType, body string
}

func answer(ctx context.Context, client *http.Client, address string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return reply{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header.Get("Content-Type"), string(body)}, err
}

func compared(got, want reply) string {
	if got == want {
		return fmt.Sprintf("%d, upstream's %s", got.code, strings.TrimSpace(got.body))
	}
	return fmt.Sprintf("got %v, upstream says %v", got, want)
}
