package permissions

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/exchange"
)

// early are the columns that upstream answers before it authenticates the request. A client whose
// certificate is no good receives its 401 first here.
var early = map[string]bool{
	"GET /api/v1/namespaces/red/configmaps?timeout=abc": true,
	"GET /api/v1/watch": true,
}

// strandedBy reports whether an answer may differ because the request could not be passed through
// as its own user.
func (p identity) strandedBy(column target, a *exchange.Answer) bool {
	own := a.Header.Get(exchange.FlowControl) == ""
	if p.unproven {
		return own && a.Status == http.StatusUnauthorized && early[column.String()]
	}
	if !p.unforwardable || !own || a.Status != http.StatusForbidden {
		return false
	}
	if column.Method == http.MethodHead {
		return passing[column.String()] // it has no body to say so
	}
	var status metav1.Status
	return json.Unmarshal(a.Body, &status) == nil &&
		strings.HasPrefix(status.Message,
			"this request is not answered from memory, and the client certificate that it came with cannot be shown to the "+
				"API server")
}

// strand notes a cell that was answered so.
func (n *counts) strand(p identity, column target) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cells++
	n.refused++
	name := column.String()
	switch {
	case p.unproven:
		n.early[name]++
		return nil
	case p.byLender && !p.unlendable:
		return errors.New("he could be impersonated, but: not passed through for who has a certificate")
	}
	n.stranded[name]++
	if !passing[name] && !perhaps[name] {
		return errors.New("it could be answered, but: not passed through for who has a certificate")
	}
	return nil
}

func (n *counts) strandedCells() int {
	sum := 0
	for _, cells := range n.stranded {
		sum += cells
	}
	return sum
}

// judgeStranded fails for columns that are said to be passed through, or to be answered early, and
// were not.
func (n *counts) judgeStranded(t *testing.T, columns []target) {
	for _, column := range columns {
		name := column.String()
		if passing[name] && n.stranded[name] == 0 {
			t.Errorf("%s is said to be passed through, but nobody was told so", name)
		}
		if early[name] && n.early[name] == 0 {
			t.Errorf("%s is said to be answered before the asker is known, but was not", name)
		}
	}
}
