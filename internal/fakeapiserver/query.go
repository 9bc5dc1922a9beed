package fakeapiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// query is a LIST or WATCH request, understood.
type query struct {
	table    *table
	selector selector
	options  internalversion.ListOptions
	shown    form
}

// selector says which objects a client sees.
type selector struct {
	namespace string // "" is all
	labels    labels.Selector
	fields    fields.Selector
}

func (s selector) matches(o *Obj) bool {
	return o != nil && (s.namespace == "" || o.Namespace == s.namespace) && s.labels.Matches(o.Labels) &&
		s.fields.Matches(o.Fields)
}

// isEverything reports that neither labels nor fields select.
func (s selector) isEverything() bool { return s.labels.Empty() && s.fields.Empty() }

// parseQuery decodes, defaults and validates the options of a collection, with kube-apiserver's own
// code and in its order (W-24 … W-32).
func (s *Server) parseQuery(r *http.Request, at target, verb string) (*query, error) {
	q := &query{table: at.table, selector: selector{namespace: at.namespace, labels: labels.Everything(),
		fields: fields.Everything()}}
	o, watchLists := &q.options, !s.kubernetesNow().NoWatchList
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(o, watchLists)
	if errs := validation.ValidateListOptions(o, watchLists); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.LabelSelector != nil {
		q.selector.labels = o.LabelSelector
	}
	var err error
	if o.FieldSelector != nil {
		if q.selector.fields, err = o.FieldSelector.Transform(at.table.kind.fieldLabel); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	q.shown, err = negotiate(r, verb)
	return q, err
}

// isWatchList reports that the stream begins with the state, after the server's own defaulting
// (W-101).
func (q *query) isWatchList() bool {
	return q.options.SendInitialEvents != nil && *q.options.SendInitialEvents
}

// isWatch reports that a request for a collection is a watch (W-25), even if its other options are
// wrong.
func isWatch(values url.Values) bool {
	var o internalversion.ListOptions
	only := url.Values{}
	if v, ok := values["watch"]; ok {
		only["watch"] = v
	}
	return scheme.ParameterCodec.DecodeParameters(only, metav1.SchemeGroupVersion, &o) == nil && o.Watch
}

// proofSecondsLimit is the longest timeoutSeconds of a watch that counts as a proof.
const proofSecondsLimit = 5

// isProof reports that a watch only wants a bookmark soon: signal i of W-211.
func isProof(values url.Values) bool {
	n, err := strconv.Atoi(values.Get("timeoutSeconds"))
	return err == nil && n > 0 && n <= proofSecondsLimit
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

// parseRV reads a resourceVersion; "" is 0 (W-27). The error text is the one of GET and WATCH.
func parseRV(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: Invalid value: %q: %w", rv, err)
	}
	return n, nil
}
