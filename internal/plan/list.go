package plan

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/source"
)

// planList plans a LIST by the table of W-63.
func planList(s *source.Source, c collection, isHurried bool) Plan {
	page, err := c.readPage(s.Resource().Info)
	switch {
	case errors.Is(err, errForeignToken):
		return Plan{}
	case err != nil:
		return refuse(s, err)
	}
	page.Hurried = isHurried
	plan := Plan{Action: FromCache, Source: s, Selector: c.selector, List: page}
	isMostRecent := c.isMostRecent(page)
	switch {
	case c.isNarrowed && !c.isSingle && page.Limit > 0:
		return Plan{} // its token would lead elsewhere than upstream's (W-71)
	case isMostRecent && c.Continue == "" && c.ResourceVersion != "" && page.Limit > 0:
		return Plan{} // upstream reads its store, whose tokens have another form (W-80)
	case isMostRecent:
		plan.Action = FromCacheProven
	case c.isSingle && (page.Exact || page.Limit > 0) && s.Resource().CompleteRV() < page.RV:
		return Plan{} // upstream reads its store, which waits for nothing (W-68)
	}
	return plan
}

// readPage reads which state and which page a LIST is for.
func (c collection) readPage(info *object.Resource) (*ListPlan, error) {
	if c.Continue != "" {
		return c.readNextPage(info)
	}
	rv, err := parseRV(c.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	page := &ListPlan{RV: rv, Limit: c.effectiveLimit()}
	page.Exact = rv > 0 && (c.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		c.ResourceVersionMatch == "" && page.Limit > 0 && !c.isSingle) // from before there was a match
	page.Scanned = c.scanned(info, !page.Exact)
	return page, nil
}

// readNextPage reads a continue token: the page is of the state at its resourceVersion, or of the
// most recent one. The token's key is put under the request's own scope, whatever it says, so that
// it can never widen that (W-81).
func (c collection) readNextPage(info *object.Resource) (*ListPlan, error) {
	token, err := decodeContinue(c.Continue)
	switch {
	case errors.Is(err, errForeignToken):
		return nil, err
	case err != nil:
		return nil, apierrors.NewBadRequest("invalid continue token: " + err.Error())
	case c.ResourceVersion != "" && c.ResourceVersion != "0":
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	page := &ListPlan{Limit: c.effectiveLimit(), Start: token.Start, Scanned: c.scanned(info, false)}
	if c.selector.Namespace != "" {
		page.Start = c.selector.Namespace + "/" + token.Start
	}
	if token.RV > 0 {
		page.RV, page.Exact = uint64(token.RV), true
	}
	return page, nil
}

// effectiveLimit is the limit as upstream applies it. 0 is none: for a negative limit (W-26), and
// for resourceVersion "0" (W-63), with a continue token too, as in the newest upstream.
func (c collection) effectiveLimit() int64 {
	if c.ResourceVersion == "0" {
		return 0
	}
	return max(c.Limit, 0)
}

// isMostRecent reports that the LIST is for the most recent state (W-27, W-63). It names no
// resourceVersion, has a token that names none, or has another zero than "0", such as "00", with
// match Exact, or with a limit and no match.
func (c collection) isMostRecent(page *ListPlan) bool {
	switch {
	case page.RV > 0:
		return false
	case c.Continue != "", c.ResourceVersion == "":
		return true
	case c.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return true
	}
	return c.ResourceVersionMatch == "" && page.Limit > 0
}
