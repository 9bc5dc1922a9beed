package mirror

import "time"

// SetOptions say what is mirrored, and what of it is kept.
type SetOptions struct {
	Resources           []string      // resource[.version][.group]
	OnDemand            bool          // whatever can be listed and watched, too, at its first request
	Strict              bool          // a named resource that cannot be mirrored fails Begin
	MaxOnDemand         int           // resources that are mirrored because a client requested them
	IdleTimeout         time.Duration // after which these are given up; 0: never
	CompareInterval     time.Duration // in which each mirror is compared with upstream; 0: never
	HistoryBytes        int64         // of each resource
	HistoryMinAge       time.Duration
	MaxBackfillWatches  int   // at a time; 0: none
	EncodingCacheBytes  int64 // of what is made of objects, over all resources
	EncodedBytesAtLeast int64 // what is kept of these while memory is short
	FeedBytes           int64 // of frames, over all resources; 0: no limit
	FirstStates         int   // of resources on demand, that are on their way at a time; 0: any number
	StripManagedFields  bool
	// AsksAboutAll says that upstream reviews every client, so that none is served while it is away.
	AsksAboutAll bool
}
