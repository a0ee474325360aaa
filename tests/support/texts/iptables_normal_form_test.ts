import { assertEquals, assertThrows } from "@std/assert";
import { iptablesNormalForm } from "./iptables_normal_form.ts";

function nat(...lines: readonly string[]): string {
  const names = lines.map((line) => line.split(" ")[1]);
  const chains = [...new Set(names)].map((name) => `:${name} - [0:0]`);
  return ["*nat", ...chains, ...lines, "COMMIT"].join("\n");
}

const FIRST = "-d 172.30.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80";
const SECOND = "-d 172.30.0.2/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80";
const TAIL = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS";

Deno.test("iptablesNormalForm() treats a tree and a list as the same", () => {
  const list = nat(`-A KUBE-SERVICES ${SECOND}`, `-A KUBE-SERVICES ${FIRST}`, TAIL);
  const tree = nat(
    "-A KUBE-SERVICES -d 172.30.0.0/24 -j KUBE-VIP-ac1e0000-24",
    TAIL,
    "-A KUBE-VIP-ac1e0000-24 -d 172.30.0.2/31 -g KUBE-VIP-ac1e0002-31",
    `-A KUBE-VIP-ac1e0000-24 ${FIRST}`,
    `-A KUBE-VIP-ac1e0002-31 ${SECOND}`,
  );
  assertEquals(iptablesNormalForm(tree), iptablesNormalForm(list));
});

Deno.test("iptablesNormalForm() throws for a rule that its tree does not lead to", () => {
  const tree = nat(
    "-A KUBE-SERVICES -d 172.30.0.2/31 -j KUBE-VIP-ac1e0002-31",
    `-A KUBE-VIP-ac1e0002-31 ${FIRST}`,
  );
  assertThrows(() => iptablesNormalForm(tree), Error, "Cannot reach '-d 172.30.0.1/32");
});

Deno.test("iptablesNormalForm() throws for a rule behind a jump to other rules", () => {
  const tree = nat(
    "-A KUBE-SERVICES -d 172.30.0.0/24 -j KUBE-VIP-ac1e0000-24",
    `-A KUBE-SERVICES ${FIRST}`,
    `-A KUBE-VIP-ac1e0000-24 ${SECOND}`,
  );
  assertThrows(() => iptablesNormalForm(tree), Error, "leads away before it");
});

Deno.test("iptablesNormalForm() keeps the order of rules for the same packets", () => {
  const mark = FIRST.replace(/-j .*/, "-j KUBE-MARK-MASQ");
  const [good, bad] = [[mark, FIRST], [FIRST, mark]].map((rules) =>
    iptablesNormalForm(nat(...rules.map((rule) => `-A KUBE-SERVICES ${rule}`)))
  );
  assertEquals(good?.["nat KUBE-SERVICES"]?.length, 3);
  assertEquals(
    good?.["nat KUBE-SERVICES"]?.toReversed().slice(0, 2),
    bad?.["nat KUBE-SERVICES"]?.slice(1),
  );
});
