import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { TableListing } from "./table_listing.ts";

const LISTING = `table ip kube-relay {
	comment "kube-relay"
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : classid
		elements = { 172.30.0.1 . tcp . 80 : 8abc:d002,
			     172.30.0.2 . udp . 53 : 8000: }
	}

	map endpoints {
		type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service
		elements = { 172.30.0.1 . tcp . 80 . 8000:1 : 10.1.0.1 . 8080 }
	}

	map choices {
		type ipv4_addr . inet_proto . inet_service . classid : classid
		elements = { 172.30.0.3 . tcp . 80 . 8000: : 8abc:d001,
			     172.30.0.3 . tcp . 80 . 8000:1 : root,
			     172.30.0.3 . tcp . 80 . 8000:2 : 8abc: }
	}

	map numbered-chains {
		type classid : verdict
		elements = { 8abc:d002 : goto off-cluster-2,
			     8000: : drop }
	}

	map affinity {
		typeof ip saddr . ip daddr . meta l4proto . th dport : meta priority
		size 1048576
		flags dynamic,timeout
		elements = { 10.0.0.1 . 172.30.0.3 . tcp . 80 timeout 10s expires 9s : 8abc:d001 }
	}

	set cluster-ips {
		type ipv4_addr
		elements = { 172.30.0.1, 172.30.0.2,
			     172.30.0.3 }
	}

	set other {
		type ipv4_addr
		elements = { 1.2.3.4 }
	}

	chain layout-3 {
	}

	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}
}
`;

function read(text: string) {
  const listing = new TableListing();
  for (const line of text.split("\n")) listing.take(line);
  return listing.end();
}

Deno.test("TableListing reads names, and elements in their written form", () => {
  const { declarations, elements, rules } = read(LISTING);
  assertEquals([...rules], [
    ["layout-3", ""],
    ["nat-output", "\t\ttype nat hook output priority -100; policy accept;\n\t\tjump services\n"],
  ]);
  assertEquals([...declarations.keys()], [
    "service-ips",
    "endpoints",
    "choices",
    "numbered-chains",
    "affinity",
    "cluster-ips",
    "other",
  ]);
  assertEquals(Object.fromEntries([...elements].map(([name, map]) => [name, [...map]])), {
    "service-ips": [
      ["172.30.0.1 . tcp . 80", "0x8abcd002"],
      ["172.30.0.2 . udp . 53", "0x80000000"],
    ],
    endpoints: [["172.30.0.1 . tcp . 80 . 0x80000001", "10.1.0.1 . 8080"]],
    choices: [
      ["172.30.0.3 . tcp . 80 . 0x80000000", "0x8abcd001"],
      ["172.30.0.3 . tcp . 80 . 0x80000001", "0xffffffff"],
      ["172.30.0.3 . tcp . 80 . 0x80000002", "0x8abc0000"],
    ],
    "numbered-chains": [["0x8abcd002", "goto off-cluster-2"], ["0x80000000", "drop"]],
    "cluster-ips": [["172.30.0.1", ""], ["172.30.0.2", ""], ["172.30.0.3", ""]],
    other: [["1.2.3.4", ""]],
  });
});

Deno.test("TableListing refuses a table that is cut off", () => {
  const lines = LISTING.split("\n");
  for (let end = 0; end < lines.length - 2; end++) {
    assertThrows(() => read(lines.slice(0, end).join("\n")), SyntaxError);
  }
});

Deno.test("TableListing reads or refuses whatever a tool may print", () => {
  const lines = LISTING.split("\n");
  const mutations = fc.array(
    fc.tuple(
      fc.nat(lines.length - 1),
      fc.constantFrom("drop", "double", "cut", "garbage"),
      fc.string(),
    ),
    { minLength: 1, maxLength: 5 },
  );
  let refused = 0;
  fc.assert(
    fc.property(mutations, (mutations) => {
      const mutated = [...lines];
      for (const [at, kind, text] of mutations) {
        const line = mutated[at] ?? "";
        if (kind === "drop") mutated.splice(at, 1);
        if (kind === "double") mutated.splice(at, 0, line);
        if (kind === "cut") mutated[at] = line.slice(0, text.length);
        if (kind === "garbage") mutated[at] = text;
      }
      try {
        read(mutated.join("\n"));
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        refused++;
      }
    }),
    { numRuns: 2_000 },
  );
  assert(refused > 0);
});

Deno.test("TableListing reads numbers of protocols, as printed if /etc/protocols is missing", () => {
  const numbers = LISTING.replaceAll("tcp", "6").replaceAll("udp", "17");
  assertEquals(read(numbers).elements, read(LISTING).elements);
  const ports = read(`table ip kube-relay {
	map node-ports {
		type inet_proto . inet_service : classid
		elements = { 132 . 17 : 8abc:d002, tcp . 6 : 8abc:d002 }
	}
	map node-port-endpoints {
		type inet_proto . inet_service . classid : ipv4_addr . inet_service
		elements = { 6 . 17 . 8000:6 : 10.1.0.1 . 17 }
	}
	set hairpin {
		type ipv4_addr . ipv4_addr
		elements = { 10.1.0.1 . 10.1.0.1 }
	}
}
`).elements;
  assertEquals([...ports.get("node-ports") ?? []].map(([key]) => key), ["sctp . 17", "tcp . 6"]);
  assertEquals([...ports.get("node-port-endpoints") ?? []], [[
    "tcp . 17 . 0x80000006",
    "10.1.0.1 . 17",
  ]]);
});

Deno.test("TableListing reads addresses of ::/96, whose end the tool prints as IPv4", () => {
  const { elements } = read(`table ip6 kube-relay {
	map endpoints {
		type ipv6_addr . inet_proto . inet_service . classid : ipv6_addr . inet_service
		elements = { fd00::1 . 6 . 80 . 8000: : ::1.2.3.4 . 80,
			     ::18.52.0.0 . tcp . 80 . 8000: : fd00::2 . 80 }
	}
	set service-cidrs {
		type ipv6_addr
		flags interval
		elements = { ::1.2.3.0/120 }
	}
}
`);
  assertEquals([...elements.get("endpoints") ?? []], [
    ["fd00::1 . tcp . 80 . 0x80000000", "::102:304 . 80"],
    ["::1234:0 . tcp . 80 . 0x80000000", "fd00::2 . 80"],
  ]);
  assertEquals([...elements.get("service-cidrs")?.keys() ?? []], ["::102:300/120"]);
});

Deno.test("TableListing reads declarations of sets and maps, and whether the table is dormant", () => {
  const { declarations, isDormant } = read(LISTING);
  assertEquals(
    [declarations.get("other"), declarations.get("affinity"), isDormant],
    [
      "set\ntype ipv4_addr\n",
      "map\ntypeof ip saddr . ip daddr . meta l4proto . th dport : meta priority\nsize 1048576\n" +
      "flags dynamic,timeout\n",
      false,
    ],
  );
  const counted = LISTING.replace("size 1048576", "size 1048576\t# count 1");
  assertEquals(read(counted).declarations, declarations);
  assertEquals(read(LISTING.replace("comment", "flags dormant\n\tcomment")).isDormant, true);
});
