package status

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseQuery(t *testing.T) {
	f := func(query, want, wantErr string) {
		t.Helper()
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ParseQuery(values)
		if wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), wantErr) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want a line with %q", query, err, wantErr)
			}
			return
		}
		if err != nil || q.Values().Encode() != want {
			t.Errorf("%s: %q, %v; want %q", query, q.Values().Encode(), err, want)
		}
	}
	f("", "", "")
	f("sort=lag&limit=500&resources=resource", "", "")
	f("sort=-lag", "sort=-lag", "")
	f("sort=rate&resources=-objects&limit=0", "limit=0&resources=-objects&sort=rate", "")
	f("sort=height", "", `sort="height": must be one of user, lag,`)
	f("sort=--lag", "", "must be one of")
	f("resources=lag", "", "must be one of resource, ")
	f("limit=-1", "", "must be a number from 0 to 100000")
	f("limit=all", "", "must be a number")
	f("limit=100001", "", "must be a number")
}

// Each column sorts as its head says: figures from the largest on, words from A on, and the other
// way round with a minus.
func TestSelect(t *testing.T) {
	ids := func(r *Report) (ids []uint64) {
		for _, w := range r.Watches.Items {
			ids = append(ids, w.ID)
		}
		return ids
	}
	r := sample()
	for sort, first := range map[string]uint64{
		"lag": 2, "-lag": 1, "behind": 2, "user": 1, "-user": 2, "agent": 2, "sent": 1, "-sent": 2, "age": 1, "event": 1,
		"selector": 2, "state": 2,
		"protocol": 2, "encoding": 2, "peer": 1, "id": 2, "-id": 1,
	} {
		order, err := ParseOrder(sort)
		if err != nil {
			t.Fatal(err)
		}
		q := DefaultQuery()
		q.WatchOrder = order
		if got := ids(r.Select(q)); len(got) != 2 || got[0] != first {
			t.Errorf("by %s: %v, want %d first", sort, got, first)
		}
	}
	if got := ids(r); got[0] != 1 {
		t.Errorf("the report itself was sorted: %v", got)
	}
	q := DefaultQuery()
	q.ResourceOrder = Order{Key: "resource"}
	if got := r.Select(q).Resources[0].Resource; got != "leases.coordination.k8s.io" {
		t.Errorf("resources begin with %s", got)
	}
}

func TestLimit(t *testing.T) {
	q := DefaultQuery()
	selected := crowd(1700).Select(q)
	if n := len(selected.Watches.Items); n != DefaultLimit || selected.Watches.Total != 1700 ||
		selected.Watches.Items[0].LagEvents != 1699 {
		t.Errorf("%d of %d, the first lags %d", n, selected.Watches.Total, selected.Watches.Items[0].LagEvents)
	}
	if got := selected.Shown(); got != "500 of 1,700 watches, the first by lag; 1,200 more are not shown." {
		t.Error(got)
	}
	q.Limit = 0
	if selected = crowd(3).Select(q); len(selected.Watches.Items) != 0 || selected.Watches.Total != 3 {
		t.Errorf("limit=0 shows %d of %d", len(selected.Watches.Items), selected.Watches.Total)
	}
}
