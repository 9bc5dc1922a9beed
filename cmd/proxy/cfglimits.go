package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// limitOptions are how much clients may ask for at a time; 0 is no limit.
type limitOptions struct {
	watches, watchesPerUser         int
	watchesReserve                  int // while so many remain free, a user may have more than watchesPerUser; 0: never
	listBytes                       byteSize
	bodyBytes                       int64 // of a memory budget
	headBytes                       byteSize
	passThrough, passThroughPerUser int
	selectorTerms                   int // of a memory budget; 0: as many users have as many as one may
	selectorTermsPerUser            int
	qpsPerUser                      float64
	burstPerUser                    int // 0: two seconds' worth
}

// newLimitOptions are limits that are there for those who run wild; nobody else should ever meet one. No user has more than half of
// anything, so that none of them can shut out all others; of watches, no more than seven eighths.
func newLimitOptions() limitOptions {
	return limitOptions{
		watches:        100_000, // some 700 MB while they are idle
		watchesPerUser: 50_000,
		listBytes:      1 << 30,
		// Two selectors of 60,000 terms each, 512 of 256, or any number of few: some 5 MB.
		selectorTermsPerUser: 128 << 10,
		headBytes:            64 << 20,
		passThrough:          600, // as a kube-apiserver takes by its own defaults: 400 that read and 200 that write
		passThroughPerUser:   300,
	}
}

func (o *options) requestLimitFlags(fs *pflag.FlagSet) {
	l := &o.limits
	fs.IntVar(&l.watches, "max-watches", l.watches,
		"Serve at most this `number` of watches at a time. Logs, exec, attach, port-forward and proxied requests that pass through count, too. "+
			"0 is no limit, here and below. Beyond a limit requests are answered 429 with Retry-After, as the API server does.")
	fs.IntVar(&l.watchesPerUser, "max-watches-per-user", l.watchesPerUser,
		"Serve at most this `number` of them to one user; to one address, where the user is not known. Unless it is set, a user may have more while an "+
			"eighth of --max-watches remains free for others.")
	fs.Var(&l.listBytes, "max-list-bytes-in-flight",
		"Send at most this many `bytes` of large lists and of states that watches begin with at the same time, and half of that to one user. "+
			"Others wait for their turn, up to 5s; the user with the least goes first. What is compressed counts an eighth.")
	fs.IntVar(&l.selectorTermsPerUser, "max-selector-terms-per-user", l.selectorTermsPerUser,
		"Let the label and field selectors of one user's watches have at most this `number` of terms in all, names and the values of sets, where they "+
			"are answered from memory, and those of all users eight times as many, or fewer by --memory-budget. 32 bytes of a selector are a term at least; equal selectors of a user count once, "+
			"and those of up to 16 terms not at all.")
	fs.Var(&l.headBytes, "max-large-head-bytes",
		"Hold at most this many `bytes` for large heads of requests at a time, of all connections together: those above 16 KiB over HTTP/1.1, "+
			"which count six times, and those above 32 KiB, decoded, over HTTP/2. "+
			"Others are answered 431. A head may have 1 MiB, as the API server has it.")
	fs.IntVar(&l.passThrough, "max-passthrough-requests", l.passThrough,
		"Pass at most this `number` of requests through at a time, besides those that last. Others wait for their turn, up to 15s; the user with "+
			"fewest under way goes first.")
	fs.IntVar(&l.passThroughPerUser, "max-passthrough-requests-per-user", l.passThroughPerUser, "Pass at most this `number` of them through for one user.")
	fs.Float64Var(&l.qpsPerUser, "max-passthrough-qps-per-user", l.qpsPerUser, "Pass at most this `number` of requests per second through for one user.")
	fs.IntVar(&l.burstPerUser, "max-passthrough-burst-per-user", l.burstPerUser,
		"Pass this `number` of requests through at once before --max-passthrough-qps-per-user counts. 0 is as many as in two seconds.")
}

// qpsMost is a rate beyond which a limit is surely not meant.
const qpsMost = 1e6

func (o *options) validateRequestLimits() error {
	l := o.limits
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"max-watches", l.watches}, {"max-watches-per-user", l.watchesPerUser},
		{"max-selector-terms-per-user", l.selectorTermsPerUser},
		{"max-passthrough-requests", l.passThrough}, {"max-passthrough-requests-per-user", l.passThroughPerUser},
		{"max-passthrough-burst-per-user", l.burstPerUser},
	} {
		if n.value < 0 {
			return o.refuse(n.flag, fmt.Sprint(n.value), "must not be negative; 0 is no limit")
		}
	}
	if l.listBytes != 0 && l.listBytes < minListBytes {
		return o.refuse("max-list-bytes-in-flight", l.listBytes.String(), "must be 0, which is no limit, or at least 1Mi; is the unit missing, as in 512Mi?")
	}
	if l.headBytes != 0 && l.headBytes < minListBytes {
		return o.refuse("max-large-head-bytes", l.headBytes.String(),
			"must be 0, which is no limit, or at least 1Mi; is the unit missing, as in 64Mi?")
	}
	if !(l.qpsPerUser >= 0 && l.qpsPerUser <= qpsMost) { // also what is no number
		return o.refuse("max-passthrough-qps-per-user", fmt.Sprint(l.qpsPerUser), "must be between 0, which is no limit, and 1000000")
	}
	if l.burstPerUser > 0 && l.qpsPerUser == 0 {
		return o.refuse("max-passthrough-burst-per-user", fmt.Sprint(l.burstPerUser), "has a meaning only with --max-passthrough-qps-per-user")
	}
	return nil
}

// minListBytes catches a size that lost its unit.
const minListBytes = 1 << 20

// selectorUsers is how many users have as many selectors as one may, at a time.
const selectorUsers = 8

// burst is how many requests of a user pass through at once before the rate counts.
func (l limitOptions) burst() int {
	if l.burstPerUser == 0 {
		return max(1, int(2*l.qpsPerUser))
	}
	return l.burstPerUser
}

// allSelectorTerms is how many terms the selectors of all users may have in all.
func (l limitOptions) allSelectorTerms() int {
	terms := selectorUsers * l.selectorTermsPerUser
	if l.selectorTerms > 0 {
		terms = min(terms, max(l.selectorTerms, l.selectorTermsPerUser))
	}
	return terms
}
