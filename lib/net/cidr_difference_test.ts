import { assertEquals } from "@std/assert";
import { parseCidr } from "./cidr.ts";
import { blocksWithoutExceptions } from "./cidr_difference.ts";
import type { IpFamily } from "./ip_address.ts";

const CASES: readonly {
  family: IpFamily;
  blocks: readonly (readonly [cidr: string, ...except: string[]])[];
  result: readonly string[];
}[] = [
  { family: "IPv4", blocks: [["0.0.0.0/0"]], result: ["0.0.0.0/0"] },
  { family: "IPv6", blocks: [["::/0"]], result: ["::/0"] },
  {
    family: "IPv4",
    blocks: [["10.0.0.0/8", "10.128.0.0/9"]],
    result: ["10.0.0.0/9"],
  },
  {
    family: "IPv4",
    blocks: [["0.0.0.0/0", "255.255.255.255/32", "0.0.0.0/1"]],
    // 128.0.0.0/2, 192.0.0.0/3, …, 255.255.255.254/32
    result: Array.from({ length: 31 }, (_, index) => {
      const octets = [24, 16, 8, 0].map((shift) => -(2 ** (31 - index)) >>> shift & 255);
      return `${octets.join(".")}/${index + 2}`;
    }),
  },
  {
    // An exception counts for its own entry only.
    family: "IPv4",
    blocks: [["10.0.0.0/8", "10.1.0.0/16"], ["10.1.0.0/16", "10.1.1.0/24"]],
    result: blocksOf([["10.0.0.0/8", "10.1.1.0/24"]]),
  },
  { family: "IPv4", blocks: [["10.0.0.0/24", "10.0.0.0/24"]], result: [] },
  { family: "IPv4", blocks: [["10.0.0.0/24", "10.0.0.0/8"]], result: [] },
  { family: "IPv4", blocks: [["10.0.0.0/24", "fd00::/8"]], result: ["10.0.0.0/24"] },
  { family: "IPv4", blocks: [["10.0.0.0/25"], ["10.0.0.128/25"]], result: ["10.0.0.0/24"] },
  { family: "IPv6", blocks: [["fd00::/8", "fd80::/9"]], result: ["fd00::/9"] },
  {
    family: "IPv6",
    blocks: [["fd00::/126", "fd00::1/128"]],
    result: ["fd00::/128", "fd00::2/127"],
  },
];

function blocksOf(blocks: readonly (readonly [string, ...string[]])[], family: IpFamily = "IPv4") {
  const parsed = blocks.map(([cidr, ...except]) => ({
    cidr: parseCidr(cidr),
    except: except.map(parseCidr),
  }));
  return blocksWithoutExceptions(parsed, { family, most: 100 }) ?? [];
}

for (const { family, blocks, result } of CASES) {
  Deno.test(`blocksWithoutExceptions() of ${JSON.stringify(blocks)}`, () => {
    assertEquals<readonly string[]>(blocksOf(blocks, family), result);
  });
}

Deno.test("blocksWithoutExceptions() gives up beyond the limit", () => {
  const blocks = [{ cidr: parseCidr("::/0"), except: [parseCidr("::/128")] }];
  assertEquals(blocksWithoutExceptions(blocks, { family: "IPv6", most: 127 }), undefined);
  assertEquals(blocksWithoutExceptions(blocks, { family: "IPv6", most: 128 })?.length, 128);
});

Deno.test("blocksWithoutExceptions() writes addresses as they are written everywhere", () => {
  const networks = [
    "::",
    "1::",
    "::1:0:0:0",
    "1:0:0:2::",
    "1:0:0:2:0:0:0:3",
    "fd00::1:0:0:1",
    "a:b:c:d:e:f:1:2",
  ];
  for (const network of networks) {
    const cidr = parseCidr(`${network}/128`);
    assertEquals<readonly string[]>(blocksOf([[cidr]], "IPv6"), [cidr]);
  }
  // Addresses that stand for IPv4 stay addresses of IPv6 here.
  const found = blocksOf([["::/0", "::/96"]], "IPv6");
  assertEquals(found.filter((cidr) => !cidr.includes(":")), []);
});
