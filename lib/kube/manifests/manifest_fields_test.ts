import { assertEquals } from "@std/assert";
import { SERVICE } from "../../api/kinds/service.ts";
import { unknownFields } from "./manifest_objects.ts";

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
