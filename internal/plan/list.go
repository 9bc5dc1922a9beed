package plan

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/source"
)

// planList plans a LIST by the table of W-63.
func planList(s *source.Source, c collection, hurried bool) Plan {
	l, err := c.listed(s.Resource().Info)
	switch {
	case errors.Is(err, errForeignToken):
		return Plan{}
	case err != nil:
		return refuse(s, err)
	}
	plan := Plan{Action: FromCache, Source: s, Selector: c.selector, List: l}
	l.Hurried = hurried
	switch {
	case c.narrowed && !c.single && l.Limit > 0:
		return Plan{} // its token would lead elsewhere than upstream's (W-71)
	case c.recent(l) && c.Continue == "" && c.ResourceVersion != "" && l.Limit > 0:
		return Plan{} // upstream asks its store, whose tokens have another form (W-80)
	case c.recent(l):
		plan.Action = FromCacheProven
	case c.single && (l.Exact || l.Limit > 0) && s.Resource().CompleteRV() < l.RV:
		return Plan{} // upstream asks its store, which waits for nothing (W-68)
	}
	return plan
}

// listed is the state and the page that a LIST asks for.
func (c collection) listed(info *object.Resource) (*ListPlan, error) {
	if c.Continue != "" {
		return c.continued(info)
	}
	rv, err := parseRV(c.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	l := &ListPlan{RV: rv, Limit: c.honoured()}
	l.Exact = rv > 0 && (c.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		c.ResourceVersionMatch == "" && l.Limit > 0 && !c.single) // the second is the rule of old
	l.Scanned = c.scanned(info, !l.Exact)
	return l, nil
}

// continued is the rest of a list, at the token's resourceVersion or at the most recent one. The
// token's key is put under the request's own scope, whatever it says, so that it can never widen
// that (W-81).
func (c collection) continued(info *object.Resource) (*ListPlan, error) {
	token, err := decodeContinue(c.Continue)
	switch {
	case errors.Is(err, errForeignToken):
		return nil, err
	case err != nil:
		return nil, apierrors.NewBadRequest("invalid continue token: " + err.Error())
	case c.ResourceVersion != "" && c.ResourceVersion != "0":
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	l := &ListPlan{Limit: c.honoured(), Start: token.Start, Scanned: c.scanned(info, false)}
	if c.selector.Namespace != "" {
		l.Start = c.selector.Namespace + "/" + token.Start
	}
	if token.RV > 0 {
		l.RV, l.Exact = uint64(token.RV), true
	}
	return l, nil
}

// honoured is the limit. 0 is none: for a negative limit (W-26), and for resourceVersion "0"
// (W-63), with a continue token too, as in the newest upstream.
func (c collection) honoured() int64 {
	if c.ResourceVersion == "0" {
		return 0
	}
	return max(c.Limit, 0)
}

// recent reports that the LIST asks for the most recent state: by naming none, by a token that
// names none, or by another zero, such as "00", with match Exact, or with a limit and no match
// (W-27, W-63).
func (c collection) recent(l *ListPlan) bool {
	switch {
	case l.RV > 0:
		return false
	case c.Continue != "", c.ResourceVersion == "":
		return true
	case c.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return true
	}
	return c.ResourceVersionMatch == "" && l.Limit > 0
}
