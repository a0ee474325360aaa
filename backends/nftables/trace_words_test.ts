import { assertEquals } from "@std/assert";
import { describeNftablesStep } from "./trace_words.ts";

const SERVICE = "ns1/web:http/TCP";
const words = (chain: string, rule: string, verdict = "accept") =>
  describeNftablesStep({ place: `ip kube-relay ${chain}`, rule, verdict }, SERVICE);

const LOOK_UP = "meta priority set ip daddr . meta l4proto . th dport map @service-ips meta " +
  "priority vmap @numbered-chains";
const CHOOSE =
  "meta priority set numgen random mod 5 offset 2147483648 dnat ip to ip daddr . meta " +
  "l4proto . th dport . meta priority map @endpoints";

Deno.test("describeNftablesStep() says what a rule does", () => {
  assertEquals(words("services", LOOK_UP, "goto off-cluster-5"), `an address of ${SERVICE}`);
  assertEquals(
    words("services", LOOK_UP, "goto reject-all"),
    `an address of ${SERVICE}, which has no endpoint`,
  );
  assertEquals(words("off-cluster-5", CHOOSE), "goes to one of 5 endpoints, taken at random");
  assertEquals(words("reject-all", "reject", "drop"), "refused: the sender is told so");
  assertEquals(
    words("check-source-ranges", "drop", "drop"),
    `the sender is in no source range of ${SERVICE}: dropped`,
  );
});

Deno.test("describeNftablesStep() says nothing of tables of others, nor of a policy", () => {
  const place = "inet others services";
  assertEquals(describeNftablesStep({ place, rule: LOOK_UP, verdict: "drop" }, SERVICE), undefined);
  assertEquals(
    describeNftablesStep({ place: "ip kube-relay services", verdict: "accept" }, SERVICE),
    undefined,
  );
});
