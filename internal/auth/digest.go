package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"strconv"
	"sync"
)

// Digest stands for a credential or a question wherever one is looked up. So no map holds a token,
// and all keys have one size.
type Digest [sha256.Size]byte

// Hasher makes digests with a key of its own: a digest that got out says nothing of the token that
// it was made of. It is safe for concurrent use.
type Hasher struct {
	pool sync.Pool // of hash.Hash
}

// NewHasher returns a Hasher with a random key.
func NewHasher() *Hasher {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: it ends the process instead
	return &Hasher{pool: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// Sum is the digest of a sequence: ("a", "bc") and ("ab", "c") differ.
func (h *Hasher) Sum(parts ...string) Digest {
	mac := h.pool.Get().(hash.Hash)
	defer h.pool.Put(mac)
	mac.Reset()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		_, _ = io.WriteString(mac, part)
	}
	var d Digest
	mac.Sum(d[:0])
	return d
}

// count is the length of a list. It is put in front of its items, so that lists cannot run into
// each other.
func count(list []string) string { return strconv.Itoa(len(list)) }
