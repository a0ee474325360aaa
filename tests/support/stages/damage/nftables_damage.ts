/** Damage to the table of nftables mode, for the Services of `damaged_services.ts`. */
import type { DamageRow } from "./damaged_modes.ts";

const WEB = "172.30.0.1 . tcp . 80";
const STICKY = "172.30.0.2 . tcp . 80";
const GUARDED = "192.0.2.3 . tcp . 80";

/**
 * A row whose damage is one or more statements on the table of kube-relay, written without its
 * name.
 */
function row(name: string, damage: string, ...found: readonly string[]): DamageRow {
  const text = damage.split("; ").map((statement) =>
    statement.replace(/^(\w+ \w+) ?/, "$1 ip kube-relay ")
  ).join("\n");
  return { name, damage: `${text}\n`, found };
}

/** Removes an element, and may add another in its place. */
function element(container: string, key: string, value?: string): string {
  const added = value === undefined ? "" : `; add element ${container} { ${key} : ${value} }`;
  return `delete element ${container} { ${key} }${added}`;
}

/** Every object of the mode, with each possible damage. */
export const NFTABLES_DAMAGE: readonly DamageRow[] = [
  row("the table is deleted", "delete table", "missing table ip kube-relay"),
  row(
    "the table is put to sleep",
    "add table { flags dormant ; }",
    "altered table ip kube-relay",
  ),
  row(
    "the table is laid out as another release would",
    "rename chain layout-3 layout-1",
    "altered table ip kube-relay",
  ),
  row(
    "the elements of a set go by themselves",
    "flush chain nat-postrouting; delete set hairpin; " +
      "add set hairpin { type ipv4_addr . ipv4_addr ;flags timeout ;}",
    "altered table ip kube-relay",
  ),
  row(
    "a set counts what is found in it",
    "flush chain nat-postrouting; delete set hairpin; " +
      "add set hairpin { type ipv4_addr . ipv4_addr ;counter ;}",
    "altered table ip kube-relay",
  ),
  row(
    "a set is of other things",
    "flush chain nat-postrouting; delete set hairpin; " +
      "add set hairpin { type ipv4_addr . inet_service ;}",
    "altered table ip kube-relay",
  ),
  row("the mark of the layout is deleted", "delete chain layout-3", "altered table ip kube-relay"),
  row("a base chain is deleted", "delete chain nat-output", "missing chain nat-output"),
  row(
    "a chain that Services lead to is deleted",
    "delete element numbered-chains { 0xf4bb9c89 }; delete chain off-cluster-3",
    "missing chain off-cluster-3",
    "missing map element numbered-chains 0xf4bb9c89",
  ),
  row(
    "a strange chain with a hook and a rule is added",
    "add chain strange { type filter hook input priority 0 ; }; add rule strange counter",
    "extra chain strange",
  ),
  row(
    "strange chains that lead to each other are added",
    "add chain strange; add chain unknown; add rule strange jump unknown; " +
      "add rule unknown counter",
    "extra chain strange",
    "extra chain unknown",
  ),
  row(
    "a base chain is hooked at another priority",
    "delete chain nat-output; add chain nat-output { type nat hook output priority -99 ; }; " +
      "add rule nat-output jump services",
    "altered chain nat-output",
  ),
  row(
    "a base chain drops by its policy",
    "add chain nat-postrouting { policy drop ; }",
    "altered chain nat-postrouting",
  ),
  row(
    "a base chain is emptied",
    "flush chain nat-prerouting",
    "missing rule nat-prerouting, rule 1",
  ),
  row(
    "a rule is deleted",
    "delete rule services handle {services 1}",
    "missing rule services, rule 1",
  ),
  row(
    "a rule is inserted",
    "insert rule services ip daddr 192.0.2.99 accept",
    "extra rule services, rule 1",
  ),
  row(
    "a rule is altered",
    "replace rule services handle {services 2} fib daddr type local meta priority set " +
      "meta l4proto . th dport map @node-ports meta priority vmap @numbered-chains",
    "altered rule services, rule 2",
  ),
  row(
    "rules are reordered",
    "add rule unclaimed ip daddr @cluster-ips fib daddr type != local goto reject-all; " +
      "delete rule unclaimed handle {unclaimed 1}",
    "reordered rule unclaimed, rule 1",
  ),
  row(
    "a chain chooses among fewer endpoints",
    "replace rule off-cluster-3 handle {off-cluster-3 2} meta priority set numgen random mod 2 " +
      "offset 2147483648 dnat ip addr . port to ip daddr . meta l4proto . th dport . " +
      "meta priority map @endpoints",
    "altered rule off-cluster-3, rule 2",
  ),
  ...elementRows(),
  ...containerRows(),
];

function elementRows(): readonly DamageRow[] {
  return [
    row(
      "the address of a Service is deleted",
      element("service-ips", WEB),
      `missing map element service-ips ${WEB} [ns/web]`,
    ),
    row(
      "the address of a Service refuses",
      element("service-ips", WEB, "0xbdd83d28"),
      `altered map element service-ips ${WEB} [ns/web]`,
    ),
    row(
      "a strange address is added",
      "add element service-ips { 192.0.2.99 . tcp . 80 : 0xbdd83d28 }",
      "extra map element service-ips 192.0.2.99 . tcp . 80",
    ),
    row(
      "all endpoints of a Service are deleted",
      [0, 1, 2].map((index) => element("endpoints", `${WEB} . 0x8000000${index}`)).join("; "),
      ...[0, 1, 2].map((index) =>
        `missing map element endpoints ${WEB} . 0x8000000${index} [ns/web]`
      ),
    ),
    row(
      "an endpoint is added",
      `add element endpoints { ${WEB} . 0x80000003 : 192.0.2.99 . 80 }`,
      `extra map element endpoints ${WEB} . 0x80000003 [ns/web]`,
    ),
    row(
      "a choice of a Service with affinity is another one",
      element("choices", `${STICKY} . 0x80000001`, "0x861e02c1"),
      `altered map element choices ${STICKY} . 0x80000001 [ns/sticky]`,
    ),
    row(
      "a node port is deleted",
      element("node-ports", "tcp . 30080"),
      "missing map element node-ports tcp . 30080 [ns/web]",
    ),
    row(
      "an endpoint of a node port for clients from outside is another one",
      element("node-port-endpoints", "tcp . 30085 . 0x80008000", "10.2.0.9 . 8080"),
      "altered map element node-port-endpoints tcp . 30085 . 0x80008000 [ns/local]",
    ),
    row(
      "a source range is deleted",
      element("source-ranges", `${GUARDED} . 203.0.113.0/24`),
      `missing set element source-ranges ${GUARDED} . 203.0.113.0/24 [ns/guarded]`,
    ),
    row(
      "a source range is added",
      `add element source-ranges { ${GUARDED} . 192.0.2.0/24 }`,
      `extra set element source-ranges ${GUARDED} . 192.0.2.0/24 [ns/guarded]`,
    ),
    row(
      "what is admitted is dropped",
      element("admitted", GUARDED, "drop"),
      `altered map element admitted ${GUARDED} [ns/guarded]`,
    ),
    row(
      "a pair is masqueraded that is none",
      "add element hairpin { 192.0.2.9 . 192.0.2.9 }",
      "extra set element hairpin 192.0.2.9 . 192.0.2.9",
    ),
    row(
      "a cluster IP is forgotten",
      element("cluster-ips", "172.30.0.4"),
      "missing set element cluster-ips 172.30.0.4 [ns/empty]",
    ),
    row(
      "a range of Services is another one",
      "delete element service-cidrs { 172.30.0.0/16 }; " +
        "add element service-cidrs { 172.31.0.0/16 }",
      "extra set element service-cidrs 172.31.0.0/16",
      "missing set element service-cidrs 172.30.0.0/16",
    ),
    row(
      "a number leads to another chain",
      element("numbered-chains", "0xf4bb9c89", "goto reject-all"),
      "altered map element numbered-chains 0xf4bb9c89",
    ),
  ];
}

function containerRows(): readonly DamageRow[] {
  return [
    row(
      "a map is emptied",
      "flush map choices",
      `missing map element choices ${STICKY} . 0x80000000 [ns/sticky]`,
      `missing map element choices ${STICKY} . 0x80000001 [ns/sticky]`,
    ),
    row("a map is deleted", "delete map node-port-choices", "missing map node-port-choices"),
    row("a set is deleted", "delete set node-port-ips", "missing set node-port-ips"),
    row(
      "a strange chain with a strange set is added",
      "add set strange { type ipv4_addr ; }; add chain unknown; " +
        "add rule unknown ip saddr @strange drop",
      "extra chain unknown",
      "extra set strange",
    ),
  ];
}
