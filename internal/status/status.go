// Package status shows operators the mirrored resources, the open watches, how far each is behind,
// and the clients that were evicted. It renders a Report as a page, text and JSON. Package report
// makes the reports.
//
// Invariant: a report is made at a request, at most once a second, and kept for a minute. Text that
// clients send is escaped, and characters that cannot be printed are replaced, so that it is
// neither markup nor a terminal's control sequence.
package status

import "time"

// Report is how the proxy stood at a moment. Immutable.
type Report struct {
	At            time.Time `json:"at"`
	Version       string    `json:"version"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptimeSeconds"`

	Upstream Upstream `json:"upstream"`
	Memory   Memory   `json:"memory"`
	Files    []*File  `json:"files"` // that are followed while they are rotated
	// StalledLoops are loops of the process that have work and do not move. There should be none.
	StalledLoops []*StalledLoop    `json:"stalledLoops,omitempty"`
	Resources    []*Resource       `json:"resources"`
	Watches      Watches           `json:"watches"`
	Ended        map[string]uint64 `json:"ended"`     // watches, by the one reason why
	Evictions    []*Eviction       `json:"evictions"` // the last ones, latest first
	// Rejections are the users whose requests were last rejected with 429, latest first.
	Rejections []*Rejection `json:"rejections"`
}

// Upstream is how the API server is from here.
type Upstream struct {
	Host string `json:"host"`
	// Version is its version, or the oldest and the newest of several; "" until it has answered.
	Version string `json:"version,omitempty"`
	// Capabilities are what it can do, as it has shown: by name yes, no or unknown.
	Capabilities map[string]string `json:"capabilities,omitempty"`
	// Waiting is why nothing is served yet: upstream has not answered since the start. "" once it has.
	Waiting string `json:"waiting,omitempty"`
	// StaleResources are those whose mirrors do not receive events at present.
	StaleResources []string `json:"staleResources"`
	// StateAgeSeconds is how long ago the oldest of their states was last known to be upstream's; 0
	// while there are none.
	StateAgeSeconds float64 `json:"stateAgeSeconds"`
}

// Memory is how much of it there is.
type Memory struct {
	LimitBytes int64 `json:"limitBytes"` // 0: no limit
	InUseBytes int64 `json:"inUseBytes"` // as the guard of the limit counts it; 0 where there is none
	// Steps are the steps of degradation that are taken at present because memory is short.
	Steps []string `json:"steps"`
}

// File is one that is read again when it changes: of certificates, keys, a token, a kubeconfig.
type File struct {
	File    string     `json:"file"`
	Use     string     `json:"use"`
	Since   time.Time  `json:"since"` // when what is in use was read
	Changes uint64     `json:"changes"`
	Expires *time.Time `json:"expires,omitempty"` // when the certificate in use ends; of authorities, the last of them
	Error   string     `json:"error,omitempty"`   // why what is in the file now is not in use
}

// StalledLoop is a loop of the process that has work and does not move.
type StalledLoop struct {
	Loop  string    `json:"loop"` // what it does, and for what: mirror pods
	Since time.Time `json:"since"`
}

// Resource is one that is mirrored.
type Resource struct {
	Resource string `json:"resource"` // with its group: deployments.apps
	Version  string `json:"version"`
	Synced   bool   `json:"synced"` // its first complete state has arrived
	// State is starting, synced, resuming, refused, falling_back or given_up; StateCause is why, ""
	// if there is nothing to explain.
	State            string    `json:"state"`
	StateCause       string    `json:"stateCause,omitempty"`
	StateSince       time.Time `json:"stateSince"`
	NextRetrySeconds float64   `json:"nextRetrySeconds,omitempty"` // at most, until the next request upstream
	ResourceVersion  string    `json:"resourceVersion"`
	Objects          int       `json:"objects"`
	ObjectBytes      int64     `json:"objectBytes"` // of JSON
	Since            time.Time `json:"since"`       // mirrored since
	// ContactAgeSeconds is how long ago upstream last sent something useful; StateAgeSeconds how old
	// the state is, 0 while it is kept current.
	ContactAgeSeconds  float64 `json:"contactAgeSeconds"`
	StateAgeSeconds    float64 `json:"stateAgeSeconds"`
	HistoryEvents      uint64  `json:"historyEvents"`
	HistorySpanSeconds float64 `json:"historySpanSeconds"` // that history reaches back
	Watches            int     `json:"watches"`
	Feeds              int     `json:"feeds"`       // distinct selectors and encodings among them
	DispatchLag        uint64  `json:"dispatchLag"` // events in history that are not dispatched to feeds yet
	// Lists are the complete states that were requested from upstream.
	Lists                      uint64 `json:"lists"`
	Failures                   uint64 `json:"failures"`                   // requests of the mirror that upstream failed
	ConsistencyCheckMismatches uint64 `json:"consistencyCheckMismatches"` // objects that differ from upstream
	Error                      string `json:"error,omitempty"`
}

// Watches are those that are served from memory.
type Watches struct {
	Total int `json:"total"`
	// Sort and Limit are those of the request: Items are the first Limit of all in that order.
	Sort  string `json:"sort"`
	Limit int    `json:"limit"`
	// BytesPerSecond is what is sent to all of them; RateSeconds is over how long it and theirs were
	// measured. 0: there was no recent report, so it is since each began.
	BytesPerSecond float64  `json:"bytesPerSecond"`
	RateSeconds    float64  `json:"rateSeconds"`
	Items          []*Watch `json:"items"`
}

// Watch is one client's watch. ID is of no other while the process lives.
type Watch struct {
	ID            uint64 `json:"id"`
	User          string `json:"user"`      // "" without authentication
	UserAgent     string `json:"userAgent"` // what the client says; the first 256 bytes of it
	Peer          string `json:"peer"`
	Protocol      string `json:"protocol"`
	Encoding      string `json:"encoding"`
	Resource      string `json:"resource"`
	Version       string `json:"version"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Phase is starting while what precedes live events is sent, then live; PhasePaused until upstream
	// confirms its permission.
	Phase           string    `json:"phase"`
	Began           time.Time `json:"began"`
	AgeSeconds      float64   `json:"ageSeconds"`
	DeadlineSeconds float64   `json:"deadlineSeconds"` // until it is over
	// LagEvents is the number of entries of the resource's history from the first that it has yet to
	// be sent. LagSeconds is the age of that entry, or the time since the client last read a byte
	// while its connection is full, whichever is longer.
	LagEvents      uint64  `json:"lagEvents"`
	LagSeconds     float64 `json:"lagSeconds"`
	UnsentBytes    int     `json:"unsentBytes"`    // on their way, that the client's connection does not take
	BlockedSeconds float64 `json:"blockedSeconds"` // since it last took any; 0 if it is not waited for
	Bytes          int64   `json:"bytes"`          // sent, of events
	BytesPerSecond float64 `json:"bytesPerSecond"`
	// LastEvent is the time of the newest event that it selects and that its client has, perhaps from
	// before it began; nil if that is not known.
	LastEvent *time.Time `json:"lastEvent,omitempty"`
}

// PhasePaused is the phase that is highlighted: package watch's name for it.
const PhasePaused = "paused"

// Rejection is a user with requests that limits have rejected with 429.
type Rejection struct {
	At    time.Time `json:"at"`    // of the last one
	Since time.Time `json:"since"` // of the first one that Count counts
	User  string    `json:"user"`  // the first 256 bytes of it; "" if it is not known
	// Peer is the client's address, of IPv6 the first of its /64 prefix, if its user is not known.
	Peer  string `json:"peer,omitempty"`
	Count uint64 `json:"count"`
	// Limit and Reason are of the last one, as metrics call them.
	Limit  string `json:"limit"`
	Reason string `json:"reason"`
}

// Eviction is a watch that was ended because its client read too slowly, or nothing.
type Eviction struct {
	At            time.Time `json:"at"`
	User          string    `json:"user"`
	UserAgent     string    `json:"userAgent"`
	Peer          string    `json:"peer"`
	Resource      string    `json:"resource"`
	Namespace     string    `json:"namespace,omitempty"`
	Name          string    `json:"name,omitempty"`
	LabelSelector string    `json:"labelSelector,omitempty"`
	FieldSelector string    `json:"fieldSelector,omitempty"`
	AgeSeconds    float64   `json:"ageSeconds"`
	Bytes         int64     `json:"bytes"`
}
