package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ConfigMaps are objects of one size.
const (
	ConfigMaps    = "/api/v1/namespaces/default/configmaps"
	configMapName = "pulse"
)

// CreateConfigMaps creates n stamped ConfigMaps whose JSON has a size, as near as may be, and
// returns their paths.
func (p *Pair) CreateConfigMaps(ctx context.Context, n, size int) ([]string, error) {
	object := func(name string, padding int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"%s","annotations":{"at":"%s%d"}},"data":{"padding":"%s"}}`,
			name, StampPrefix, time.Now().UnixNano(), incompressible(padding))
	}
	const probe = configMapName + "-0000"
	if err := p.Create(ctx, ConfigMaps, 1, func(int) []byte { return object(probe, 0) }); err != nil {
		return nil, err
	}
	client := NewTLSClient(p.Config().BearerToken)
	defer client.CloseIdleConnections()
	bare, err := GetAll(ctx, client, p.ControlPlane.URL()+ConfigMaps+"/"+probe)
	if err != nil {
		return nil, err
	}
	padding := max(size-len(bare), 0)
	paths := make([]string, n)
	err = p.Create(ctx, ConfigMaps, n, func(i int) []byte {
		name := configMapName + "-" + fmt.Sprintf("%04d", i+1)
		paths[i] = ConfigMaps + "/" + name
		return object(name, padding)
	})
	return paths, err
}

// incompressible is text that does not compress, and holds no stamp.
func incompressible(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"
	var b strings.Builder
	for range n {
		b.WriteByte(letters[rand.IntN(len(letters))])
	}
	return b.String()
}

// GetAll reads the whole answer to a GET.
func GetAll(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	body, err := Get(ctx, client, address)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// Newest is the resourceVersion up to which a server has a collection in memory: where a watch
// starts that is to see nothing but what is written from now on.
func (s Server) Newest(ctx context.Context, collection string) (uint64, error) {
	client := NewHTTPClient()
	if s.Token != "" {
		client = NewTLSClient(s.Token)
	}
	defer client.CloseIdleConnections()
	body, err := GetAll(ctx, client, s.URL+collection+"?resourceVersion=0&labelSelector=none")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	return strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
}
