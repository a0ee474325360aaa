import { assertEquals } from "@std/assert";
import { NODE } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { unknownFields } from "./manifest_objects.ts";

Deno.test("unknownFields() looks into lists and leaves unused fields alone", () => {
  const raw = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "a", labels: { anything: "x" } },
    spec: { selector: { app: "a" }, ports: [{ port: 1 }, { prot: 2 }] },
    status: { whatever: 1 },
  };
  assertEquals(unknownFields(SERVICE, raw), [
    {
      path: ["spec", "ports", 1, "prot"],
      value: 2,
      message: "is no field of kind Service; did you mean 'port'?",
    },
  ]);
});

Deno.test("unknownFields() treats names of Object.prototype as unknown", () => {
  const found = unknownFields(NODE, { constructor: 1, toString: 2 });
  assertEquals(found.map(({ path }) => path[0]), ["constructor", "toString"]);
});

Deno.test("unknownFields() finds annotations of kube-relay that do not exist, and no others", () => {
  const annotations = {
    "example.org/balence": "",
    "kube-relay.io/balance": "",
    "kube-relay.io/ipvs-scheduler": "",
    "kube-relay.io/load-balancer-ips": "",
    "kube-relay.io/balence": "source-hash",
    "kube-relay.io/colour": "red",
  };
  const raw = { metadata: { name: "a", annotations, labels: { "kube-relay.io/balence": "" } } };
  assertEquals(unknownFields(SERVICE, raw), [
    {
      path: ["metadata", "annotations", "kube-relay.io/balence"],
      value: "source-hash",
      message: "is no annotation of kube-relay; did you mean 'kube-relay.io/balance'?",
    },
    {
      path: ["metadata", "annotations", "kube-relay.io/colour"],
      value: "red",
      message: "is no annotation of kube-relay",
    },
  ]);
});
