package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/bench/rig"
)

// list is what a LIST said.
type list struct {
	scope scope
	rv    uint64
	items map[string]uint64
	next  string // continue
}

// readList does one LIST.
func readList(ctx context.Context, client *http.Client, collection string, query url.Values) (*list, error) {
	body, err := rig.Get(ctx, client, collection+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var answer metav1.PartialObjectMetadataList
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("LIST: %w", err)
	}
	l := &list{items: map[string]uint64{}, next: answer.Continue}
	if l.rv, err = strconv.ParseUint(answer.ResourceVersion, 10, 64); err != nil {
		return nil, fmt.Errorf("LIST: %w", err)
	}
	for _, item := range answer.Items {
		rv, err := strconv.ParseUint(item.ResourceVersion, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("LIST: %w", err)
		}
		l.items[item.Namespace+"/"+item.Name] = rv
	}
	return l, nil
}

// lister lists again and again: any state, then that very state page by page.
type lister struct {
	client     *http.Client
	collection string
	scope      scope
	pause      time.Duration

	lists   []*list // complete ones
	pages   int
	problem error
}

func (l *lister) run(ctx context.Context) {
	pause := time.NewTicker(l.pause)
	defer pause.Stop()
	for {
		if err := l.turn(ctx); err != nil {
			if ctx.Err() == nil {
				l.problem = err
			}
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *lister) turn(ctx context.Context) error {
	whole, err := readList(ctx, l.client, l.collection, url.Values{"resourceVersion": {"0"}})
	if err != nil {
		return err
	}
	whole.scope = l.scope
	l.lists = append(l.lists, whole)
	paged, err := l.paged(ctx, whole.rv)
	if err != nil {
		return err
	}
	l.lists = append(l.lists, paged)
	return nil
}

// paged lists the state at exactly rv, in four pages or so.
func (l *lister) paged(ctx context.Context, rv uint64) (*list, error) {
	size := strconv.Itoa(max(1, len(l.lists[len(l.lists)-1].items)/4+1))
	query := url.Values{"resourceVersion": {strconv.FormatUint(rv, 10)}, "resourceVersionMatch": {"Exact"},
		"limit": {size}}
	all := &list{scope: l.scope, rv: rv, items: map[string]uint64{}}
	for {
		page, err := readList(ctx, l.client, l.collection, query)
		if err != nil {
			return nil, err
		}
		l.pages++
		if page.rv != rv {
			return nil, fmt.Errorf("a page of the list at %d says it is at %d", rv, page.rv)
		}
		for key, version := range page.items {
			all.items[key] = version
		}
		if page.next == "" {
			return all, nil
		}
		query = url.Values{"limit": {size}, "continue": {page.next}}
	}
}

// verify compares with the acknowledged writes, after the lister has stopped.
func (l *lister) verify(t *acknowledgedWrites) error {
	if l.problem != nil {
		return l.problem
	}
	for _, one := range l.lists {
		if d := stateDifference(one.items, t.state(one.scope, one.rv)); d != "" {
			return fmt.Errorf("list at %d: %s", one.rv, d)
		}
	}
	return nil
}
