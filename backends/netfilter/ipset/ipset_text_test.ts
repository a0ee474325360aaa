import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { atOnce } from "../in_steps.ts";
import {
  addLine,
  createLine,
  createOptions,
  deleteLine,
  normalEntry,
  normalOptions,
  readIpsetSave,
  replaceLines,
} from "./ipset_text.ts";

function read(text: string, isWanted: (name: string) => boolean = () => true) {
  return atOnce(readIpsetSave(text, isWanted));
}

/** As ipset 7.17 prints it. */
const SAVED =
  `create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x3b1a
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create OTHER hash:net family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x3b1a
add OTHER 10.0.0.0/8
`;

Deno.test("readIpsetSave() reads sets with their entries, and only those that are wanted", () => {
  const sets = read(SAVED, (name) => name.startsWith("KUBE-"));
  assertEquals([...sets].map(([name, { options, entries }]) => [name, options, [...entries]]), [
    [
      "KUBE-CLUSTER-IP",
      "hash:ip,port family inet maxelem 65536",
      ["10.96.0.1,tcp:443", "10.96.0.10,udp:53"],
    ],
    ["KUBE-NODE-PORT-TCP", "bitmap:port range 0-65535", ["30080"]],
  ]);
});

Deno.test("readIpsetSave() parses the output of createLine() and addLine()", () => {
  for (const family of IP_FAMILIES) {
    for (const type of ["hash:ip", "hash:ip,port,net", "bitmap:port"] as const) {
      const options = createOptions(type, { family, maxEntries: 1_048_576 });
      const sets = read(createLine("X", options));
      assertEquals(sets.get("X")?.options, normalOptions(options));
    }
  }
  const sets = read(`create X hash:ip family inet\n${addLine("X", "10.0.0.1")}\n`);
  assertEquals([...sets.get("X")?.entries ?? []], ["10.0.0.1"]);
});

Deno.test("entries that are taken out of a block are read as they are added, and deleted by their block", () => {
  const entries = ["10.0.0.0/8", "10.1.0.0/16 nomatch", "10.1.0.7"];
  const lines = entries.map((entry) => addLine("X", entry));
  assertEquals(lines[1], "add X 10.1.0.0/16 nomatch -exist");
  const sets = read(
    `create X hash:net family inet\n${lines.join("\n")}\nadd X FD00:0::/16 nomatch\n`,
  );
  assertEquals([...sets.get("X")?.entries ?? []], [...entries, "fd00::/16 nomatch"]);
  assertEquals(deleteLine("X", "10.1.0.0/16 nomatch"), "del X 10.1.0.0/16 -exist");
});

Deno.test("readIpsetSave() never throws", () => {
  const word = fc.constantFrom("create", "add", "X", "hash:ip", "1.2.3.4", "family");
  const line = fc.array(fc.oneof(word, fc.string()), { maxLength: 6 }).map((words) =>
    words.join(" ")
  );
  fc.assert(fc.property(fc.array(line), (lines) => {
    for (const { entries } of read(lines.join("\n")).values()) assert(entries.size >= 0);
  }));
});

Deno.test("replaceLines() fills the new set before it takes the place of the old one", () => {
  assertEquals(replaceLines("KUBE-X", { options: "hash:ip family inet", entries: ["10.0.0.1"] }), [
    "create NEW-KUBE-X hash:ip family inet -exist",
    "flush NEW-KUBE-X",
    "add NEW-KUBE-X 10.0.0.1 -exist",
    "swap NEW-KUBE-X KUBE-X",
    "destroy NEW-KUBE-X",
  ]);
});

Deno.test("normalEntry() writes addresses and ranges as we do", () => {
  const entries = [
    "fd00:0:0:0:0:0:0:1,tcp:80,2001:DB8::/32",
    "10.0.0.1,sctp:80,203.0.113.7/32",
    "fd00::1,tcp:80,fd00::1/128",
    "30080",
  ];
  assertEquals(entries.map(normalEntry), [
    "fd00::1,tcp:80,2001:db8::/32",
    "10.0.0.1,sctp:80,203.0.113.7",
    "fd00::1,tcp:80,fd00::1",
    "30080",
  ]);
});
