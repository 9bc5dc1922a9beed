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

// TenResources are those that CreateOfEach makes objects of, as --resources names them.
const TenResources = "configmaps,endpoints,leases.coordination.k8s.io,limitranges,persistentvolumeclaims," +
	"podtemplates,replicationcontrollers,resourcequotas,serviceaccounts,services"

// CreateOfEach creates n stamped objects of each of ten resources, whose JSON has about a size, and
// returns their paths, so that neighbours are of different resources, and those of the collections.
func (p *Pair) CreateOfEach(ctx context.Context, n, size int) (paths, collections []string, err error) {
	const pod = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`
	specs := map[string]string{
		"limitranges":            `,"spec":{"limits":[]}`,
		"persistentvolumeclaims": `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`,
		"podtemplates":           `,"template":` + pod,
		"replicationcontrollers": `,"spec":{"replicas":0,"selector":{"a":"b"},"template":` + pod + `}`,
		"services":               `,"spec":{"ports":[{"port":80}]}`,
	}
	for name := range strings.SplitSeq(TenResources, ",") {
		resource, group, _ := strings.Cut(name, ".")
		collection := "/api/v1/namespaces/default/" + resource
		if group != "" {
			collection = "/apis/" + group + "/v1/namespaces/default/" + resource
		}
		err := p.Create(ctx, collection, n, func(i int) []byte {
			const rest = 500 // bytes, about, of the metadata that kube-apiserver adds
			return fmt.Appendf(nil, `{"metadata":{"name":"each-%d","annotations":{"at":"%s%d","padding":"%s"}}%s}`, i,
				StampPrefix, time.Now().UnixNano(), incompressible(max(0, size-rest)), specs[resource])
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", resource, err)
		}
		collections = append(collections, collection)
	}
	for i := range n {
		for _, collection := range collections {
			paths = append(paths, fmt.Sprintf("%s/each-%d", collection, i))
		}
	}
	return paths, collections, nil
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
