package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// LimitOptions are how much clients may ask for at a time; 0 is no limit.
type LimitOptions struct {
	Watches, WatchesPerUser         int
	WatchesReserve                  int // while so many remain free, a user may have more than watchesPerUser; 0: never
	ListBytes                       ByteSize
	BodyBytes                       int64 // of a memory budget
	HeaderBytes                     ByteSize
	PassThrough, PassThroughPerUser int
	SelectorTerms                   int // of a memory budget; 0: as many users have as many as one may
	SelectorTermsPerUser            int
	QPSPerUser                      float64
	BurstPerUser                    int // 0: two seconds' worth
}

// newLimitOptions are limits for clients that run wild; no other client should meet one. No user
// has more than half of anything, so that none can shut out all others; of watches, no more than
// seven eighths.
func newLimitOptions() LimitOptions {
	return LimitOptions{
		Watches:        100_000, // some 700 MB while they are idle
		WatchesPerUser: 50_000,
		ListBytes:      1 << 30,
		// Two selectors of 60,000 terms each, 512 of 256, or any number of few: some 5 MB.
		SelectorTermsPerUser: 128 << 10,
		HeaderBytes:          64 << 20,
		PassThrough:          600, // as a kube-apiserver takes by its own defaults: 400 that read and 200 that write
		PassThroughPerUser:   300,
	}
}

func (o *Settings) requestLimitFlags(fs *pflag.FlagSet) {
	l := &o.Limits
	fs.IntVar(&l.Watches, "max-watches", l.Watches,
		"Serve at most this `number` of watches at a time. Logs, exec, attach, port-forward and proxied requests that "+
			"pass through count, too. 0 is no limit, here and below. Beyond a limit requests are answered 429 with "+
			"Retry-After, as the API server does.")
	fs.IntVar(&l.WatchesPerUser, "max-watches-per-user", l.WatchesPerUser,
		"Serve at most this `number` of them to one user; to one address, where the user is not known. Unless it is "+
			"set, a user may have more while an eighth of --max-watches remains free for others.")
	fs.Var(&l.ListBytes, "max-list-bytes-in-flight",
		"Send at most this many `bytes` of large lists and of states that watches begin with at the same time, and "+
			"half of that to one user. Others wait for their turn, up to 5s; the user with the least goes first. What is "+
			"compressed counts an eighth.")
	fs.IntVar(&l.SelectorTermsPerUser, "max-selector-terms-per-user", l.SelectorTermsPerUser,
		"Let the label and field selectors of one user's watches have at most this `number` of terms in all, names "+
			"and the values of sets, where they are answered from memory, and those of all users eight times as many, or "+
			"fewer by --memory-budget. 32 bytes of a selector are a term at least; equal selectors of a user count once, "+
			"and those of up to 16 terms not at all.")
	fs.Var(&l.HeaderBytes, "max-large-header-bytes",
		"Hold at most this many `bytes` for large heads of requests at a time, of all connections together: those "+
			"above 16 KiB over HTTP/1.1, which count six times, and those above 32 KiB, decoded, over HTTP/2. Others are "+
			"answered 431. A head may have 1 MiB, as the API server has it.")
	fs.IntVar(&l.PassThrough, "max-passthrough-requests", l.PassThrough,
		"Pass at most this `number` of requests through at a time, besides those that last. Others wait for their "+
			"turn, up to 15s; the user with fewest under way goes first. Senders that the API server has not accepted "+
			"lately have an eighth of it together.")
	fs.IntVar(&l.PassThroughPerUser, "max-passthrough-requests-per-user", l.PassThroughPerUser,
		"Pass at most this `number` of them through for one user.")
	fs.Float64Var(&l.QPSPerUser, "max-passthrough-qps-per-user", l.QPSPerUser,
		"Pass at most this `number` of requests per second through for one user.")
	fs.IntVar(&l.BurstPerUser, "max-passthrough-burst-per-user", l.BurstPerUser,
		"Pass this `number` of requests through at once before --max-passthrough-qps-per-user counts. 0 is as many as in "+
			"two seconds.")
}

// maxQPS is a rate beyond which a limit is surely not meant.
const maxQPS = 1e6

func (o *Settings) validateRequestLimits() error {
	l := o.Limits
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"max-watches", l.Watches}, {"max-watches-per-user", l.WatchesPerUser},
		{"max-selector-terms-per-user", l.SelectorTermsPerUser},
		{"max-passthrough-requests", l.PassThrough}, {"max-passthrough-requests-per-user", l.PassThroughPerUser},
		{"max-passthrough-burst-per-user", l.BurstPerUser},
	} {
		if n.value < 0 {
			return o.Refuse(n.flag, fmt.Sprint(n.value), "must not be negative; 0 is no limit")
		}
	}
	if l.ListBytes != 0 && l.ListBytes < minListBytes {
		return o.Refuse("max-list-bytes-in-flight", l.ListBytes.String(),
			"must be 0, which is no limit, or at least 1Mi; is the unit missing, as in 512Mi?")
	}
	if l.HeaderBytes != 0 && l.HeaderBytes < minListBytes {
		return o.Refuse("max-large-header-bytes", l.HeaderBytes.String(),
			"must be 0, which is no limit, or at least 1Mi; is the unit missing, as in 64Mi?")
	}
	if !(l.QPSPerUser >= 0 && l.QPSPerUser <= maxQPS) { // also what is no number
		return o.Refuse("max-passthrough-qps-per-user", fmt.Sprint(l.QPSPerUser),
			"must be between 0, which is no limit, and 1000000")
	}
	if l.BurstPerUser > 0 && l.QPSPerUser == 0 {
		return o.Refuse("max-passthrough-burst-per-user", fmt.Sprint(l.BurstPerUser),
			"has a meaning only with --max-passthrough-qps-per-user")
	}
	return nil
}

// minListBytes catches a size that lost its unit.
const minListBytes = 1 << 20

// selectorUsers is how many users have as many selectors as one may, at a time.
const selectorUsers = 8

// Burst is how many requests of a user pass through at once before the rate counts.
func (l LimitOptions) Burst() int {
	if l.BurstPerUser == 0 {
		return max(1, int(2*l.QPSPerUser))
	}
	return l.BurstPerUser
}

// AllSelectorTerms is how many terms the selectors of all users may have in all.
func (l LimitOptions) AllSelectorTerms() int {
	terms := selectorUsers * l.SelectorTermsPerUser
	if l.SelectorTerms > 0 {
		terms = min(terms, max(l.SelectorTerms, l.SelectorTermsPerUser))
	}
	return terms
}
