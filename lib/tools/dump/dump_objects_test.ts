import { assertEquals, assertThrows } from "@std/assert";
import * as v from "valibot";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { POD } from "../../api/kinds/pod.ts";
import { dumpedObjects } from "./dump_objects.ts";
import { pickAllowed } from "./pick_allowed.ts";

const OBJECTS = {
  networkpolicies: [{
    metadata: { name: "p", namespace: "x" },
    spec: {
      podSelector: { matchLabels: { "app.kubernetes.io/name": "web" } },
      ingress: [
        { from: [{ podSelector: {}, unknownFields: ["new"] }] },
        { ports: [{ port: 80, endPort: 90 }, { port: "http", protocol: "UDP" }] },
      ],
      egress: [],
    },
  }],
  pods: [{
    metadata: { name: "a", namespace: "x", labels: { app: "web", "example.org/b": "" } },
    spec: { nodeName: "n1", containers: [{ ports: [{ name: "http", containerPort: 80 }] }] },
    status: { podIPs: [{ ip: "10.1.0.1" }] },
  }],
};

Deno.test("dumpedObjects() keeps all labels, names and numbers of ports, and empty selectors", () => {
  const schema = dumpedObjects([NETWORK_POLICY, POD]);
  const [policy] = OBJECTS.networkpolicies;
  const [pod] = OBJECTS.pods;
  const raw = {
    networkpolicies: [{ ...policy, status: {} }],
    pods: [{ ...pod, spec: { ...pod!.spec, serviceAccountName: "s3cret" } }],
  };
  const picked = JSON.parse(JSON.stringify(pickAllowed(raw, schema)));
  assertEquals(picked, OBJECTS);
  assertEquals<unknown>(v.parse(schema, picked), OBJECTS);
});

Deno.test("dumpedObjects() refuses labels with control characters", () => {
  const schema = dumpedObjects([POD]);
  const pods = [{ ...OBJECTS.pods[0], metadata: { name: "a", labels: { app: "\u001b[1m" } } }];
  assertThrows(() => v.parse(schema, { pods }), v.ValiError, "control characters");
});
