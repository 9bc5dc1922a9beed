package transport

import (
	"net/http"
	"slices"
	"sync"
	"weak"

	"go.uber.org/zap"

	"spillway/internal/rotation"
)

// shared is what the transports of all identities at one upstream have in common.
type shared struct {
	dialer  *dialer
	inUse   *transportSet
	retired *transportSet // transports that others have replaced; some requests may still use them
	log     *zap.Logger

	mu     sync.Mutex
	values []followedValue
}

// followedValue is a rotation.Value, whatever it is of.
type followedValue interface {
	Look() bool
	States() []rotation.FileState
}

func newShared(log *zap.Logger) *shared {
	inUse := &transportSet{}
	// An idle connection to an unresponsive address would be the next to wait.
	dialer := newDialer(newAddressTable(inUse.closeIdle))
	return &shared{dialer: dialer, inUse: inUse, retired: &transportSet{}, log: log}
}

// follow begins to follow files.
func follow[T any](s *shared, o rotation.Options[T]) (*rotation.Value[T], error) {
	o.Log = s.log
	v, err := rotation.New(o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, v)
	return v, nil
}

// followed are the values so far.
func (s *shared) followed() []followedValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.values)
}

// look looks at all files. When something changed, connections that are idle are closed: they were
// made by what was there before. Those of transports that were replaced are closed whenever they
// are idle.
func (s *shared) look() (changed bool) {
	for _, v := range s.followed() {
		changed = v.Look() || changed
	}
	if changed {
		s.inUse.closeIdle()
	}
	s.retired.closeIdle()
	return changed
}

// retire is for a transport that another one has replaced.
func (s *shared) retire(t *http.Transport) {
	t.CloseIdleConnections()
	s.retired.add(t)
}

// transportSet holds transports for as long as something else refers to them.
type transportSet struct {
	mu  sync.Mutex
	all []weak.Pointer[http.Transport]
}

func (s *transportSet) add(t *http.Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(p weak.Pointer[http.Transport]) bool { return p.Value() == nil })
	s.all = append(s.all, weak.Make(t))
}

// closeIdle closes the idle connections of all transports. The caller may hold locks of theirs.
func (s *transportSet) closeIdle() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, p := range all {
		if t := p.Value(); t != nil {
			go t.CloseIdleConnections()
		}
	}
}
