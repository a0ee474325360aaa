import { assertEquals } from "@std/assert";
import { describeNftablesStep } from "./trace.ts";

const SERVICE = "ns1/web:http/TCP";
const words = (chain: string, rule: string, verdict = "accept") =>
  describeNftablesStep({ place: `ip kube-relay ${chain}`, rule, verdict }, SERVICE);

const LOOK_UP = "meta priority set ip daddr . meta l4proto . th dport map @service-ips meta " +
  "priority vmap @numbered-chains";
const CHOOSE =
  "meta priority set numgen random mod 5 offset 2147483648 dnat ip to ip daddr . meta " +
  "l4proto . th dport . meta priority map @endpoints";

Deno.test("describeNftablesStep() describes a rule", () => {
  assertEquals(words("services", LOOK_UP, "goto off-cluster-5"), `an address of ${SERVICE}`);
  assertEquals(
    words("services", LOOK_UP, "goto reject-all"),
    `an address of ${SERVICE}, which has no endpoint`,
  );
  assertEquals(words("off-cluster-5", CHOOSE), "goes to one of 5 endpoints, taken at random");
  assertEquals(words("reject-all", "reject", "drop"), "refused: the sender gets an error");
  assertEquals(
    words("check-source-ranges", "drop", "drop"),
    `the sender is in no source range of ${SERVICE}: dropped`,
  );
});

Deno.test("describeNftablesStep() describes session affinity", () => {
  const chain = "local-3-2-sticky-60";
  const front = "ip daddr . meta l4proto . th dport . meta priority";
  const client = "meta priority & bfff:8000 . ip saddr";
  const remember = `update @affinity { ${client} timeout 1m : meta priority }`;
  const list = "meta priority set meta priority | 4000:0";
  const dnat = `dnat ip to ${front} map @endpoints`;
  const known = `meta priority set 8000:8000 meta priority set ${front} map @choices ` +
    `meta priority set ${client} map @affinity ${remember} ${list} ${front} @endpoints ${dnat}`;
  const draw = "meta priority set numgen random mod 2 offset 2147516416 " +
    `meta priority set ${front} map @choices ${remember}`;
  assertEquals(
    [known, `delete @affinity { ${client} : meta priority }`, draw, `${list} ${dnat}`]
      .map((rule) => words(chain, rule)),
    [
      "goes to the endpoint that this client had last (session affinity)",
      "the client has no endpoint that it may have here",
      "one of 2 endpoints is taken at random, and remembered for the client",
      "goes to the endpoint that was chosen",
    ],
  );
});

Deno.test("describeNftablesStep() describes no foreign tables, and no policy of a chain", () => {
  const place = "inet others services";
  assertEquals(describeNftablesStep({ place, rule: LOOK_UP, verdict: "drop" }, SERVICE), undefined);
  assertEquals(
    describeNftablesStep({ place: "ip kube-relay services", verdict: "accept" }, SERVICE),
    undefined,
  );
});
