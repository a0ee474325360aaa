import { assertEquals, assertRejects } from "@std/assert";
import { findMissingRules } from "./explain.ts";

const CARRIER = {
  object: "rule",
  name: "nat KUBE-SERVICES",
  text: "-A KUBE-SERVICES -d 10.96.0.1 -m tcp -p tcp --dport 80 -j DROP",
};
const PRINTED = "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DROP";

async function kinds(found: readonly string[] | undefined): Promise<readonly string[]> {
  const asked: string[] = [];
  const rulesOf = (table: string, chain: string) => {
    asked.push(`${table} ${chain}`);
    return Promise.resolve(found);
  };
  const differences = await findMissingRules({ rulesOf }, [CARRIER, CARRIER]);
  assertEquals(asked, ["nat KUBE-SERVICES"], "each chain is read once");
  return differences.map(({ kind, object, name }) => `${kind} ${object} ${name}`);
}

Deno.test("findMissingRules() knows a rule as the tools print it", async () => {
  assertEquals(await kinds(["-j RETURN", PRINTED]), []);
});

Deno.test("findMissingRules() names missing rules, or the missing chain", async () => {
  const rule = "missing rule nat KUBE-SERVICES";
  assertEquals(await kinds(["-j RETURN"]), [rule, rule]);
  assertEquals(await kinds(undefined), ["missing chain nat KUBE-SERVICES"]);
});

Deno.test("findMissingRules() rejects before there is anybody to ask", async () => {
  await assertRejects(() => findMissingRules(undefined, []), Error, "has not succeeded");
});
