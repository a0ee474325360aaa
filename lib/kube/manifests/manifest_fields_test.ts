import { assertEquals } from "@std/assert";
import { SERVICE } from "../../api/kinds/service.ts";
import { unknownFields } from "./manifest_objects.ts";

Deno.test("unknownFields() finds annotations of kube-relay that do not exist or whose values are not used, in one pass", () => {
  const annotations = {
    "example.org/balence": "",
    "kube-relay.io/balance": "quickest",
    "kube-relay.io/max-connections": 500,
    "kube-relay.io/health-check": "tcp",
    "kube-relay.io/idle-timeout": "10 minutes",
    "kube-relay.io/ipvs-scheduler": "",
    "kube-relay.io/load-balancer-ips": "",
    "kube-relay.io/balence": "source-hash",
    "kube-relay.io/colour": "red",
  };
  const raw = { metadata: { name: "a", annotations, labels: { "kube-relay.io/balence": "" } } };
  assertEquals(unknownFields(SERVICE, raw), [
    {
      path: ["metadata", "annotations", "kube-relay.io/balance"],
      value: "quickest",
      message: "has to be one of round-robin, least-connections, random-two-choices, " +
        "source-hash; it is not used",
    },
    {
      path: ["metadata", "annotations", "kube-relay.io/idle-timeout"],
      value: "10 minutes",
      message: "has to be a duration between 1s and 168h0m0s, such as 30s; it is not used",
    },
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
