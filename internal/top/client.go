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

// Fetcher asks a proxy for reports.
type Fetcher struct {
	// Base is where its metrics listener is, such as http://127.0.0.1:9464.
	Base *url.URL
	// TokenFile holds a bearer token, and is read for each report, since tokens are renewed; "": none
	// is sent.
	TokenFile string
	// Transport sends it. It must not follow redirects, which http.Transport does not.
	Transport http.RoundTripper
}

const (
	// answerMost is how long a report may take to come, and reportMost how large it may be.
	answerMost = 10 * time.Second
	reportMost = 64 << 20
)

// Report asks for a report.
func (c *Fetcher) Report(ctx context.Context, q status.Query) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	values := q.Values()
	values.Set("format", "json")
	target := c.Base.JoinPath("statusz")
	target.RawQuery = values.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if c.TokenFile != "" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("no answer from %s: %w", c.Base, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, reportMost))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Base, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", c.Base, refusal(response.StatusCode, body))
	}
	var report status.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return nil, fmt.Errorf("%s answers what is no report: is this --metrics-listen of spillway? %w", c.Base, err)
	}
	// JSON's null
	report.Resources = slices.DeleteFunc(report.Resources, func(r *status.Resource) bool { return r == nil })
	report.Watches.Items = slices.DeleteFunc(report.Watches.Items, func(w *status.Watch) bool { return w == nil })
	report.Evictions = slices.DeleteFunc(report.Evictions, func(e *status.Eviction) bool { return e == nil })
	return &report, nil
}

// refusal is what an answer says, in one line: a Status as the API server has them, or text.
func refusal(code int, body []byte) string {
	var said struct{ Message string }
	text := ""
	if err := json.Unmarshal(body, &said); err == nil {
		text = said.Message
	} else {
		text = strings.TrimSpace(string(body))
	}
	const most = 300
	if len(text) > most {
		text = text[:most]
	}
	said.Message = fmt.Sprintf("%d: %s", code, status.Printable(strings.ReplaceAll(text, "\n", " ")))
	switch code {
	case http.StatusUnauthorized:
		return said.Message + ": --token-file names a token"
	case http.StatusForbidden:
		return said.Message + ": the user must be allowed to get /statusz"
	}
	return said.Message
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
