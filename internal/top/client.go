package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"spillway/internal/status"
)

// Fetcher fetches the reports of a proxy.
type Fetcher struct {
	// Base is where its metrics listener is, such as http://127.0.0.1:9464.
	Base *url.URL
	// TokenFile holds a bearer token, and is read for each report, because tokens are renewed. "":
	// none is sent.
	TokenFile string
	// Transport sends the requests. It must not follow redirects, which http.Transport does not.
	Transport http.RoundTripper
}

const (
	fetchTimeout = 10 * time.Second
	// reportBytesLimit bounds a report, and refusalBytesLimit what is shown of a refusal.
	reportBytesLimit  = 64 << 20
	refusalBytesLimit = 300
)

// Report fetches a report.
func (f *Fetcher) Report(ctx context.Context, q status.Query) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := f.newRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	response, err := f.Transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("no answer from %s: %w", f.Base, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, reportBytesLimit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Base, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", f.Base, refusalText(response.StatusCode, body))
	}
	report, err := parseReport(body)
	if err != nil {
		return nil, fmt.Errorf("%s answers what is no report: is this --metrics-listen of spillway? %w", f.Base, err)
	}
	return report, nil
}

func (f *Fetcher) newRequest(ctx context.Context, q status.Query) (*http.Request, error) {
	values := q.Values()
	values.Set(status.FormatParameter, status.FormatJSON)
	target := f.Base.JoinPath("statusz")
	target.RawQuery = values.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil || f.TokenFile == "" {
		return r, err
	}
	token, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return r, nil
}

// parseReport reads a report, and leaves out the elements that are null: no proxy sends any.
func parseReport(body []byte) (*status.Report, error) {
	var report status.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return nil, err
	}
	report.Resources = slices.DeleteFunc(report.Resources, func(r *status.Resource) bool { return r == nil })
	report.Watches.Items = slices.DeleteFunc(report.Watches.Items, func(w *status.Watch) bool { return w == nil })
	report.Evictions = slices.DeleteFunc(report.Evictions, func(e *status.Eviction) bool { return e == nil })
	report.Rejections = slices.DeleteFunc(report.Rejections, func(r *status.Rejection) bool { return r == nil })
	return &report, nil
}

// refusalText is what an answer says, in one line: a Status as the API server has them, or text.
func refusalText(code int, body []byte) string {
	var answer struct{ Message string }
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &answer) == nil {
		text = answer.Message
	}
	text = text[:min(len(text), refusalBytesLimit)]
	text = fmt.Sprintf("%d: %s", code, status.Printable(strings.ReplaceAll(text, "\n", " ")))
	switch code {
	case http.StatusUnauthorized:
		return text + ": --token-file names a token"
	case http.StatusForbidden:
		if strings.Contains(text, "does not authenticate") {
			return text // no user is allowed to
		}
		return text + ": the user must be allowed to get /statusz"
	}
	return text
}

// errNoBase says what an address must look like.
var errNoBase = errors.New("must be http://host[:port] or https://host[:port]")

// ParseBase reads the address of a metrics listener.
func ParseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil ||
		base.RawQuery != "" || base.Fragment != "" {
		return nil, errNoBase
	}
	return base, nil
}
