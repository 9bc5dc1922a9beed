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
	Watches, Resources Order
	Limit              int
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
	// LimitDefault is how many watches are shown without a limit, LimitMost the largest limit.
	LimitDefault = 500
	LimitMost    = 100_000

	sortParameter      = "sort"
	resourcesParameter = "resources"
	limitParameter     = "limit"
	formatParameter    = "format"
)

// DefaultQuery is that of a request without parameters: watches by lag.
func DefaultQuery() Query {
	return Query{Watches: Order{Key: "lag"}, Resources: Order{Key: "resource"}, Limit: LimitDefault}
}

// ParseQuery reads the parameters sort, resources and limit. An error names the parameter
// that is wrong, and its possible values.
func ParseQuery(values url.Values) (Query, error) {
	q := DefaultQuery()
	var err error
	if text := values.Get(sortParameter); text != "" {
		if q.Watches, err = ParseOrder(text); err != nil {
			return q, fmt.Errorf("%s=%w", sortParameter, err)
		}
	}
	if text := values.Get(resourcesParameter); text != "" {
		if q.Resources, err = parseOrder(text, keysOf(resourceColumns)); err != nil {
			return q, fmt.Errorf("%s=%w", resourcesParameter, err)
		}
	}
	if text := values.Get(limitParameter); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 || q.Limit > LimitMost {
			return q, fmt.Errorf("%s=%q: must be a number from 0 to %d", limitParameter, text, LimitMost)
		}
	}
	return q, nil
}

// Values are the parameters that ParseQuery reads as this query.
func (q Query) Values() url.Values {
	v, usual := url.Values{}, DefaultQuery()
	if q.Watches != usual.Watches {
		v.Set(sortParameter, q.Watches.String())
	}
	if q.Resources != usual.Resources {
		v.Set(resourcesParameter, q.Resources.String())
	}
	if q.Limit != usual.Limit {
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

// Select is the report with the watches, and in the order, of a query.
func (r *Report) Select(q Query) *Report {
	selected := *r
	selected.Resources = sorted(r.Resources, resourceColumns, q.Resources)
	w := &selected.Watches
	w.Sort, w.Limit = q.Watches.String(), q.Limit
	w.Items = sorted(w.Items, watchColumns, q.Watches)
	w.Items = w.Items[:min(len(w.Items), q.Limit)]
	return &selected
}
