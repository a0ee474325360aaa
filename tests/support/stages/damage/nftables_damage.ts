/** Damage to the table of nftables mode, for the Services of `damaged_services.ts`. */
import { textRows } from "../../texts/text_rows.ts";
import type { DamageRow } from "./damaged_modes.ts";

const WEB = "172.30.0.1 . tcp . 80";
const STICKY = "172.30.0.2 . tcp . 80";
const GUARDED = "192.0.2.3 . tcp . 80";

/**
 * Every object of the mode, with each possible damage: statements on the table of kube-relay, written
 * without its name, and the findings.
 */
export const NFTABLES_DAMAGE: readonly DamageRow[] = textRows(`
the table is deleted
  delete table
  = missing table ip kube-relay
the table is put to sleep
  add table { flags dormant
  }
  = altered table ip kube-relay
the table is laid out as another release would
  rename chain layout-3 layout-1
  = altered table ip kube-relay
the elements of a set go by themselves
  flush chain nat-postrouting
  delete set hairpin
  add set hairpin { type ipv4_addr . ipv4_addr ;flags timeout ;}
  = altered table ip kube-relay
a set counts what is found in it
  flush chain nat-postrouting
  delete set hairpin
  add set hairpin { type ipv4_addr . ipv4_addr ;counter ;}
  = altered table ip kube-relay
a set is of other things
  flush chain nat-postrouting
  delete set hairpin
  add set hairpin { type ipv4_addr . inet_service ;}
  = altered table ip kube-relay
the mark of the layout is deleted
  delete chain layout-3
  = altered table ip kube-relay
a base chain is deleted
  delete chain nat-output
  = missing chain nat-output
a chain that Services lead to is deleted
  delete element numbered-chains { 0xf4bb9c89 }
  delete chain off-cluster-3
  = missing chain off-cluster-3
  = missing map element numbered-chains 0xf4bb9c89
a strange chain with a hook and a rule is added
  add chain strange { type filter hook input priority 0
  }
  add rule strange counter
  = extra chain strange
strange chains that lead to each other are added
  add chain strange
  add chain unknown
  add rule strange jump unknown
  add rule unknown counter
  = extra chain strange
  = extra chain unknown
a base chain is hooked at another priority
  delete chain nat-output
  add chain nat-output { type nat hook output priority -99
  }
  add rule nat-output jump services
  = altered chain nat-output
a base chain drops by its policy
  add chain nat-postrouting { policy drop
  }
  = altered chain nat-postrouting
a base chain is emptied
  flush chain nat-prerouting
  = missing rule nat-prerouting, rule 1
a rule is deleted
  delete rule services handle {services 1}
  = missing rule services, rule 1
a rule is inserted
  insert rule services ip daddr 192.0.2.99 accept
  = extra rule services, rule 1
a rule is altered
  replace rule services handle {services 2} fib daddr type local meta priority set meta l4proto . th dport map @node-ports meta priority vmap @numbered-chains
  = altered rule services, rule 2
rules are reordered
  add rule unclaimed ip daddr @cluster-ips fib daddr type != local goto reject-all
  delete rule unclaimed handle {unclaimed 1}
  = reordered rule unclaimed, rule 1
a chain chooses among fewer endpoints
  replace rule off-cluster-3 handle {off-cluster-3 2} meta priority set numgen random mod 2 offset 2147483648 dnat ip addr . port to ip daddr . meta l4proto . th dport . meta priority map @endpoints
  = altered rule off-cluster-3, rule 2
the address of a Service is deleted
  delete element service-ips { ${WEB} }
  = missing map element service-ips ${WEB} [ns/web]
the address of a Service refuses
  delete element service-ips { ${WEB} }
  add element service-ips { ${WEB} : 0xbdd83d28 }
  = altered map element service-ips ${WEB} [ns/web]
a strange address is added
  add element service-ips { 192.0.2.99 . tcp . 80 : 0xbdd83d28 }
  = extra map element service-ips 192.0.2.99 . tcp . 80
all endpoints of a Service are deleted
  delete element endpoints { ${WEB} . 0x80000000 }
  delete element endpoints { ${WEB} . 0x80000001 }
  delete element endpoints { ${WEB} . 0x80000002 }
  = missing map element endpoints ${WEB} . 0x80000000 [ns/web]
  = missing map element endpoints ${WEB} . 0x80000001 [ns/web]
  = missing map element endpoints ${WEB} . 0x80000002 [ns/web]
an endpoint is added
  add element endpoints { ${WEB} . 0x80000003 : 192.0.2.99 . 80 }
  = extra map element endpoints ${WEB} . 0x80000003 [ns/web]
a choice of a Service with affinity is another one
  delete element choices { ${STICKY} . 0x80000001 }
  add element choices { ${STICKY} . 0x80000001 : 0x861e02c1 }
  = altered map element choices ${STICKY} . 0x80000001 [ns/sticky]
a node port is deleted
  delete element node-ports { tcp . 30080 }
  = missing map element node-ports tcp . 30080 [ns/web]
an endpoint of a node port for clients from outside is another one
  delete element node-port-endpoints { tcp . 30085 . 0x80008000 }
  add element node-port-endpoints { tcp . 30085 . 0x80008000 : 10.2.0.9 . 8080 }
  = altered map element node-port-endpoints tcp . 30085 . 0x80008000 [ns/local]
a source range is deleted
  delete element source-ranges { ${GUARDED} . 203.0.113.0/24 }
  = missing set element source-ranges ${GUARDED} . 203.0.113.0/24 [ns/guarded]
a source range is added
  add element source-ranges { ${GUARDED} . 192.0.2.0/24 }
  = extra set element source-ranges ${GUARDED} . 192.0.2.0/24 [ns/guarded]
what is admitted is dropped
  delete element admitted { ${GUARDED} }
  add element admitted { ${GUARDED} : drop }
  = altered map element admitted ${GUARDED} [ns/guarded]
a pair is masqueraded that is none
  add element hairpin { 192.0.2.9 . 192.0.2.9 }
  = extra set element hairpin 192.0.2.9 . 192.0.2.9
a cluster IP is forgotten
  delete element cluster-ips { 172.30.0.4 }
  = missing set element cluster-ips 172.30.0.4 [ns/empty]
a range of Services is another one
  delete element service-cidrs { 172.30.0.0/16 }
  add element service-cidrs { 172.31.0.0/16 }
  = extra set element service-cidrs 172.31.0.0/16
  = missing set element service-cidrs 172.30.0.0/16
a number leads to another chain
  delete element numbered-chains { 0xf4bb9c89 }
  add element numbered-chains { 0xf4bb9c89 : goto reject-all }
  = altered map element numbered-chains 0xf4bb9c89
a map is emptied
  flush map choices
  = missing map element choices ${STICKY} . 0x80000000 [ns/sticky]
  = missing map element choices ${STICKY} . 0x80000001 [ns/sticky]
a map is deleted
  delete map node-port-choices
  = missing map node-port-choices
a set is deleted
  delete set node-port-ips
  = missing set node-port-ips
a strange chain with a strange set is added
  add set strange { type ipv4_addr
  }
  add chain unknown
  add rule unknown ip saddr @strange drop
  = extra chain unknown
  = extra set strange
`).map(([name, ...cells]) => {
  const statements = cells.filter((cell) => !cell.startsWith("= "))
    .map((each) => `${each.replace(/^(\w+ \w+) ?/, "$1 ip kube-relay ")}\n`);
  const found = cells.flatMap((cell) => cell.startsWith("= ") ? [cell.slice(2)] : []);
  return { name, damage: statements.join(""), found };
});
