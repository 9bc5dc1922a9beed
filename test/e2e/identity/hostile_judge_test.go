package identity

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/process"
)

// lost is how the proxy refuses an identity that no header carries, and never how it refuses one of
// the deny list.
const (
	lost  = "its identity cannot be sent to the API server in a header: the "
	never = "the client certificate that it came with cannot be shown to the API server"
)

// verdict is what became of a cell.
type verdict string

const (
	asDirectly verdict = "as directly"
	fromMemory verdict = "as directly, from memory"
	uncarried  verdict = "refused, because no header carries the identity"
	denied     verdict = "refused, because nothing impersonates its group"
	allowed    verdict = "ALLOWED WHAT UPSTREAM REFUSES"
	another    verdict = "ANOTHER IDENTITY ARRIVED"
	other      verdict = "SOMETHING ELSE"
)

// identities are those as which requests were carried out, by their marks, as upstream wrote them
// down.
func (s *stage) identities(t *testing.T, cells []*cell) map[string]users {
	t.Helper()
	expected := map[string]bool{}
	for _, c := range cells {
		if d := c.asked[0]; d.status != 0 && d.status != http.StatusBadRequest && d.status != http.StatusUnauthorized {
			expected[d.mark] = true
		}
	}
	wrote := map[string]users{}
	process.Awaiting(t, "upstream to have written down all requests", func(context.Context) error {
		clear(wrote)
		for _, e := range s.Audit.Entries(t, "mark=m") {
			_, rest, _ := strings.Cut(e.RequestURI, "mark=")
			mark, _, _ := strings.Cut(rest, "&")
			if e.Stage == "RequestReceived" {
				continue // written before the identity is known
			}
			if wrote[mark] == nil {
				wrote[mark] = users{}
			}
			wrote[mark][effective(e)] = true
		}
		for mark := range expected {
			if wrote[mark] == nil {
				return fmt.Errorf("%s is missing", mark)
			}
		}
		return nil
	})
	return wrote
}

// effective is the identity of a request after impersonation.
func effective(e authcluster.Entry) string {
	user := &e.User
	if e.ImpersonatedUser != nil {
		user = e.ImpersonatedUser
	}
	return fmt.Sprintf("%q %q %q %q", user.Username, user.UID, user.Groups, user.Extra)
}

// judge compares all cells, and counts what became of them.
func (s *stage) judge(t *testing.T, cells []*cell) {
	t.Helper()
	wrote := s.identities(t, cells)
	counts := map[verdict]int{allowed: 0, another: 0, other: 0}
	kinds := map[string]int{}
	shown := 0
	for _, c := range cells {
		v := c.judge(wrote[c.asked[0].mark], wrote[c.asked[1].mark])
		counts[v]++
		kinds[fmt.Sprintf("%s over %s: %s", c.question.name, c.question.protocol, v)]++
		if v == allowed || v == another || v == other {
			if shown++; shown <= 40 {
				t.Errorf("%v: %s: directly %d, through the proxy %d %.300q; upstream wrote %q, directly %q", c, v,
					c.asked[0].status, c.asked[1].status, c.asked[1].body,
					slices.Sorted(maps.Keys(wrote[c.asked[1].mark])), slices.Sorted(maps.Keys(wrote[c.asked[0].mark])))
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%5d %s", kinds[kind], kind)
	}
	t.Logf("%d cells: %v", len(cells), counts)
	for _, v := range []verdict{asDirectly, fromMemory, uncarried, denied} {
		if counts[v] == 0 {
			t.Errorf("never: %s", v)
		}
	}
}

// judge says what became of one cell.
func (c *cell) judge(directly, through users) verdict {
	d, p := c.asked[0], c.asked[1]
	carriable := c.who.carriable(c.question.protocol == overHTTP2)
	for name := range through {
		if !directly[name] {
			return another
		}
	}
	switch refused := p.status == http.StatusForbidden || p.status == http.StatusUnauthorized ||
		p.status == http.StatusBadRequest; {
	case d.status >= http.StatusBadRequest && p.status < http.StatusBadRequest:
		return allowed
	case !refused && (d.status == http.StatusForbidden || d.status == http.StatusUnauthorized):
		return allowed
	case !carriable && !c.question.memory && !c.who.malformed():
		if p.status == http.StatusForbidden && len(through) == 0 && strings.Contains(string(p.body), lost) {
			return uncarried
		}
		return other
	case p.status == http.StatusForbidden && d.status != p.status && strings.Contains(string(p.body), never) &&
		slices.Contains(c.who.arriving(c.question.protocol == overHTTP2), masters):
		return denied
	case d.status != p.status:
		return other
	case c.question.name == "whoami" && p.status == http.StatusCreated:
		direct, err := d.user()
		arrived, failed := p.user()
		if err != nil || failed != nil || direct != arrived {
			return another
		}
	}
	if c.question.memory && p.memory && p.status != http.StatusBadRequest {
		return fromMemory
	}
	return asDirectly
}
