package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
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
	names := flags.String("names", "", "names of labels and annotations, separated by commas")
	_ = flags.Parse(args)
	scheme := newScheme(true)
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	codecs := serializer.NewCodecFactory(scheme)
	random := rand.New(rand.NewSource(*seed))
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, random, codecs).NumElements(0, 4)
	// A zero that JSON leaves out is in protobuf.
	filler.Funcs(func(i *int32, c randfill.Continue) {
		*i = c.Int31() * int32(c.Intn(3)-1)
	}, func(t *metav1.MicroTime, c randfill.Continue) {
		t.Time = time.Unix(c.Int63n(1<<33), c.Int63n(1e9))
	}, func(p *networkingv1.NetworkPolicyPort, c randfill.Continue) {
		c.FillNoCustom(p)
		ports := []*intstr.IntOrString{nil, ptr.To(intstr.FromInt32(c.Int31())), ptr.To(intstr.FromString(c.String(0)))}
		p.Port = ports[c.Intn(len(ports))]
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
			if err := addNames(filled, strings.Split(*names, ","), random); err != nil {
				return err
			}
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

// addNames sets some labels and annotations of these names, which random ones never have.
func addNames(object runtime.Object, names []string, random *rand.Rand) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	labels, annotations := accessor.GetLabels(), accessor.GetAnnotations()
	for _, texts := range []*map[string]string{&labels, &annotations} {
		for _, name := range names {
			if random.Intn(4) > 0 {
				continue
			}
			if *texts == nil {
				*texts = map[string]string{}
			}
			(*texts)[name] = strings.Repeat("ä", random.Intn(3))
		}
	}
	accessor.SetLabels(labels)
	accessor.SetAnnotations(annotations)
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
