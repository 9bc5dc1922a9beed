package upstream

import (
	"context"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/upstream/wire"
)

// listPageLimit is the limit of a LIST that may be served from etcd, as client-go's.
const listPageLimit = 500

// readList gives the Sink the state of a LIST.
func (l *loop) readList(ctx context.Context) error {
	o := metav1.ListOptions{Limit: listPageLimit}
	if !l.isRVMissing {
		o.ResourceVersion = strconv.FormatUint(l.rv, 10)
	}
	if !l.isRVMissing && l.rv > 0 && !l.hasNoCache {
		o.Limit = 0 // upstream's watch cache answers "not older than" only without one
	}
	state, pages, err := l.readPages(ctx, o)
	if isVersionMissing(err) && !l.isRVMissing {
		l.isRVMissing = true
		state, pages, err = l.readPages(ctx, metav1.ListOptions{Limit: listPageLimit})
	}
	if err != nil {
		return err
	}
	l.hasNoCache = l.hasNoCache || o.ResourceVersion == "0" && pages > 1
	rv, err := wire.ParseRV(state.Meta.ResourceVersion)
	if err != nil {
		l.r.recordFailure(ctx, "list", err)
		return err
	}
	return l.replace(ctx, state.Objects, rv)
}

// readPages reads a LIST page by page, and returns the number of pages. If upstream no longer has
// the version of the pages, the LIST is repeated without a limit.
func (l *loop) readPages(ctx context.Context, o metav1.ListOptions) (whole wire.Listing, pages int, err error) {
	l.r.mustRelist.Store(false)
	first := o
	for {
		page, err := l.readPage(ctx, o)
		if apierrors.IsResourceExpired(err) && o.Continue != "" {
			first.Limit = 0
			whole, err = l.readPage(ctx, first)
			return whole, pages + 1, err
		}
		if err != nil {
			return wire.Listing{}, pages, err
		}
		pages++
		whole.Meta, whole.Objects = page.Meta, append(whole.Objects, page.Objects...)
		if page.Meta.Continue == "" {
			return whole, pages, nil
		}
		o.Continue, o.ResourceVersion = page.Meta.Continue, ""
	}
}

func (l *loop) readPage(ctx context.Context, o metav1.ListOptions) (wire.Listing, error) {
	page, err := l.r.list(ctx, o)
	if err != nil {
		l.r.recordFailure(ctx, "list", err)
		return wire.Listing{}, err
	}
	l.r.recordContact(nil)
	return page, nil
}

// list reads a LIST, or one page of it.
func (r *Reflector) list(ctx context.Context, o metav1.ListOptions) (wire.Listing, error) {
	r.loop.Rest() // until the list has arrived
	defer r.loop.Work()
	body, err := r.client.Get(ctx, r.request(ctx, "list", r.atLeast(o)))
	if err != nil {
		return wire.Listing{}, err
	}
	defer body.Close()
	return wire.ReadList(r.resource, body)
}

// isVersionMissing reports that upstream does not have the requested version: it has forgotten it,
// or has yet to reach it.
func isVersionMissing(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
