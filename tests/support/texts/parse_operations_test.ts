import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { randomIpvsOperation } from "../builders/random_ipvs.ts";
import { renderOperations } from "./ipvs_operation.ts";
import { parseOperations, tryParseOperation } from "./parse_operations.ts";
import { addressOfServer, describeServer } from "../../../backends/ipvs/virtual_server.ts";

Deno.test("parseOperations() parses the output of renderOperations()", () => {
  fc.assert(fc.property(fc.array(randomIpvsOperation), (operations) => {
    const text = [...renderOperations(operations)].map((line) => `${line}\n`).join("");
    assertEquals(parseOperations(text), { operations, rejected: [] });
  }));
});

Deno.test("parseOperations() never throws, and gives every line its place", () => {
  const word = fc.constantFrom("-A", "-a", "-t", "-f", "-p", "-w", "-r", "1.2.3.4:5", "[::1]:80");
  const line = fc.oneof(
    fc.string(),
    fc.array(fc.oneof(word, fc.string()), { maxLength: 9 }).map((words) => words.join(" ")),
  );
  fc.assert(fc.property(fc.array(line), (lines) => {
    const text = lines.join("\n");
    const { operations, rejected } = parseOperations(text);
    const said = text.split("\n").filter((each) => each.trim() !== "");
    assertEquals(operations.length + rejected.length, said.length);
    // What it understood, it can say.
    const again = [...renderOperations(operations)].map((line) => `${line}\n`).join("");
    assertEquals(parseOperations(again).rejected, []);
  }));
});

/** Lines of `ipvsadm -S -n` 1.31 and of scripts, and how we write the same. */
const LINES: readonly (readonly [line: string, ours: string])[] = [
  ["-A -t 10.96.0.1:443 -s rr", "-A -t 10.96.0.1:443 -s rr"],
  ["-A -t 10.96.0.1:443 -s rr -p 10800", "-A -t 10.96.0.1:443 -s rr -p 10800"],
  ["-A -u 10.0.0.1:53 -s wrr -o", "-A -u 10.0.0.1:53 -s wrr -o"],
  ["-A -t 10.0.0.1:0 -p", "-A -t 10.0.0.1:0 -s wlc -p 300"],
  [
    "-A -t [fd00::0001]:443 -s mh -p 60 -M 64 -b mh-port,mh-fallback",
    "-A -t [fd00::1]:443 -s mh -p 60 -M 64 -b mh-fallback,mh-port",
  ],
  ["-A -f 7 -s rr", "-A -f 7 -s rr"],
  ["-A -f 7 -6 -s rr", "-A -f 7 -6 -s rr"],
  ["-a -f 7 -6 -r [fd00::2]:80 -i -w 5 --tun-type ipip", "-a -f 7 -6 -r [fd00::2]:80 -i -w 5"],
  ["-a -t 1.2.3.4:80 -r 5.6.7.8:80 -g -w 0 -x 9 -y 3", "-a -t 1.2.3.4:80 -r 5.6.7.8:80 -g -w 0"],
  [
    "--add-service --sctp-service 1.2.3.4:80 --scheduler lc",
    "-A --sctp-service 1.2.3.4:80 -s lc",
  ],
  ["-e --tcp-service 1.2.3.4:80 -r 5.6.7.8:80 -m", "-e -t 1.2.3.4:80 -r 5.6.7.8:80 -m -w 1"],
  ["-d -t 1.2.3.4:80 -r 5.6.7.8:80", "-d -t 1.2.3.4:80 -r 5.6.7.8:80"],
  ["-D -u [::1]:53", "-D -u [::1]:53"],
  ["-C", "-C"],
];

for (const [line, ours] of LINES) {
  Deno.test(`tryParseOperation() reads '${line}'`, () => {
    const operation = tryParseOperation(line);
    assert(operation !== undefined);
    assertEquals([...renderOperations([operation])], [ours]);
  });
}

for (
  const line of [
    "-A -t 10.0.0.256:80 -s rr",
    "-A -t 10.0.0.1:65536 -s rr",
    "-A -t host.example:80 -s rr",
    "-A -f 0 -s rr",
    "-A -f 4294967296 -s rr",
    "-A -t 10.0.0.1:80 -s rr;reboot",
    "-a -t 10.0.0.1:80 -r 10.0.0.2 -m",
    "-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m -w 65536",
    "-A",
    "-C -t 10.0.0.1:80",
    "-Z -t 10.0.0.1:80",
    "Service already exists",
  ]
) {
  Deno.test(`tryParseOperation() refuses '${line}'`, () => {
    assertEquals(tryParseOperation(line), undefined);
  });
}

Deno.test("describeServer() and addressOfServer() give the address of a server", () => {
  const keys = ["-A --sctp-service [fd00::1]:80", "-A -f 7 -6"].map((line) => {
    const operation = tryParseOperation(line);
    assert(operation?.kind === "addServer");
    return operation.server.key;
  });
  assertEquals(keys.map(describeServer), ["[fd00::1]:80/SCTP", "mark 7"]);
  assertEquals(
    JSON.stringify(keys.map(addressOfServer)),
    JSON.stringify([
      { protocol: "SCTP", address: "fd00::1", port: 80 },
      undefined,
    ]),
  );
});
