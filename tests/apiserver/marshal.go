package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"
)

// marshalled is one object in both encodings, as a server sends it.
type marshalled struct {
	Kind     string          `json:"kind"`
	JSON     json.RawMessage `json:"json"`
	Protobuf []byte          `json:"protobuf"`
}

// runMarshal writes random objects of every kind, one a line, so that a reader of both encodings can
// be compared with itself.
func runMarshal(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("marshal", flag.ExitOnError)
	seed := flags.Int64("seed", 1, "seed of the random objects")
	count := flags.Int("count", 10, "objects of each kind")
	_ = flags.Parse(args)
	scheme := newScheme(true)
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	codecs := serializer.NewCodecFactory(scheme)
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(*seed), codecs).NumElements(0, 4)
	filler.Funcs(func(t *metav1.MicroTime, c randfill.Continue) {
		t.Time = time.Unix(c.Int63n(1<<33), c.Int63n(1e9))
	})
	objects := []runtime.Object{&coordinationv1.Lease{}}
	for _, r := range resources {
		objects = append(objects, r.object)
	}
	lines := json.NewEncoder(os.Stdout)
	for _, object := range objects {
		for range *count {
			filled := object.DeepCopyObject()
			filler.Fill(filled)
			line, err := marshal(filled, scheme, codecs)
			if err != nil {
				return err
			}
			if err := lines.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func marshal(object runtime.Object, scheme *runtime.Scheme, codecs serializer.CodecFactory) (*marshalled, error) {
	kinds, _, err := scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	kind := kinds[0]
	for _, candidate := range kinds {
		if candidate.Version != runtime.APIVersionInternal {
			kind = candidate
		}
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	encode := func(mediaType string) ([]byte, error) {
		info, found := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
		if !found {
			return nil, fmt.Errorf("no serializer of %s", mediaType)
		}
		var out bytes.Buffer
		err := info.Serializer.Encode(object, &out)
		return out.Bytes(), err
	}
	asJSON, err := encode(runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	asProtobuf, err := encode(runtime.ContentTypeProtobuf)
	return &marshalled{kind.Kind, bytes.TrimSpace(asJSON), asProtobuf}, err
}
