package status

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Query is which watches are shown, and in which order these and the resources are.
type Query struct {
	WatchOrder, ResourceOrder Order
	Limit                     int // of watches; 0: none are shown
}

// Order is by which column a table is sorted: figures from the largest on, words from A on, or the
// other way round.
type Order struct {
	Key     string
	Reverse bool
}

// String is the order as a query has it.
func (o Order) String() string {
	if o.Reverse {
		return "-" + o.Key
	}
	return o.Key
}

const (
	// DefaultLimit is how many watches are shown without a limit, MaxLimit the largest limit.
	DefaultLimit = 500
	MaxLimit     = 100_000

	sortParameter      = "sort"
	resourcesParameter = "resources"
	limitParameter     = "limit"
)

// DefaultQuery is that of a request without parameters: watches by lag, resources by name.
func DefaultQuery() Query {
	return Query{WatchOrder: Order{Key: "lag"}, ResourceOrder: Order{Key: "resource"}, Limit: DefaultLimit}
}

// ParseQuery reads the parameters sort, resources and limit. An error names the parameter
// that is wrong, and its possible values.
func ParseQuery(values url.Values) (Query, error) {
	q := DefaultQuery()
	var err error
	if text := values.Get(sortParameter); text != "" {
		if q.WatchOrder, err = ParseOrder(text); err != nil {
			return q, fmt.Errorf("%s=%w", sortParameter, err)
		}
	}
	if text := values.Get(resourcesParameter); text != "" {
		if q.ResourceOrder, err = parseOrder(text, keysOf(resourceColumns)); err != nil {
			return q, fmt.Errorf("%s=%w", resourcesParameter, err)
		}
	}
	if text := values.Get(limitParameter); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 || q.Limit > MaxLimit {
			return q, fmt.Errorf("%s=%q: must be a number from 0 to %d", limitParameter, text, MaxLimit)
		}
	}
	return q, nil
}

// Values are the parameters that ParseQuery reads as this query.
func (q Query) Values() url.Values {
	v, defaults := url.Values{}, DefaultQuery()
	if q.WatchOrder != defaults.WatchOrder {
		v.Set(sortParameter, q.WatchOrder.String())
	}
	if q.ResourceOrder != defaults.ResourceOrder {
		v.Set(resourcesParameter, q.ResourceOrder.String())
	}
	if q.Limit != defaults.Limit {
		v.Set(limitParameter, strconv.Itoa(q.Limit))
	}
	return v
}

// ParseOrder reads by which column watches are sorted: its key, or that with a minus for the other
// way round.
func ParseOrder(text string) (Order, error) { return parseOrder(text, keysOf(watchColumns)) }

func parseOrder(text string, keys []string) (Order, error) {
	key, reverse := strings.CutPrefix(text, "-")
	if !slices.Contains(keys, key) {
		return Order{}, fmt.Errorf("%q: must be one of %s, or one of them after a minus, for the other way round", text,
			strings.Join(keys, ", "))
	}
	return Order{Key: key, Reverse: reverse}, nil
}

// Select returns a copy with q's order, and q's number of watches. The report is unchanged.
func (r *Report) Select(q Query) *Report {
	selected := *r
	selected.Resources = sorted(r.Resources, resourceColumns, q.ResourceOrder)
	w := &selected.Watches
	w.Sort, w.Limit = q.WatchOrder.String(), q.Limit
	w.Items = sorted(w.Items, watchColumns, q.WatchOrder)
	w.Items = w.Items[:min(len(w.Items), q.Limit)]
	return &selected
}
