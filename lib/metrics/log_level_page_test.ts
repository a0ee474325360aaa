import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { answerLogLevel } from "./metrics_server.ts";

interface Row {
  readonly name: string;
  readonly method?: string;
  readonly body?: string;
  readonly peer?: string;
  readonly host?: string;
  readonly expect: number;
  readonly set?: number;
}

const ROWS: readonly Row[] = [
  { name: "sets a level", body: "4", expect: 200, set: 4 },
  { name: "sets a level with a line end", body: " 0\n", expect: 200, set: 0 },
  { name: "answers IPv6 loopback", body: "10", peer: "::1", host: "[::1]", expect: 200, set: 10 },
  { name: "answers localhost", body: "1", host: "localhost", expect: 200, set: 1 },
  { name: "refuses GET", method: "GET", expect: 406 },
  { name: "refuses POST", method: "POST", body: "4", expect: 406 },
  { name: "refuses an empty level", body: "", expect: 400 },
  { name: "refuses a word", body: "debug", expect: 400 },
  { name: "refuses a negative level", body: "-1", expect: 400 },
  { name: "refuses a level too high", body: "11", expect: 400 },
  { name: "refuses a long text", body: "1".repeat(100_000), expect: 400 },
  { name: "does not exist for other machines", body: "4", peer: "10.0.0.1", expect: 404 },
  { name: "does not exist for an unknown peer", body: "4", peer: "", expect: 404 },
  { name: "does not exist under a name", body: "4", host: "attacker.example", expect: 404 },
];

for (const { name, method = "PUT", body, peer = "127.0.0.1", host = "127.0.0.1", ...row } of ROWS) {
  Deno.test(`answerLogLevel() ${name}`, async () => {
    const set: number[] = [];
    const request = new Request(`http://${host}:10249/debug/flags/v`, {
      method,
      ...(body !== undefined && { body }),
    });
    const answer = await answerLogLevel(
      request,
      peer === "" ? undefined : parseIpAddress(peer),
      (level) => set.push(level),
    );
    assertEquals(answer.status, row.expect);
    assertEquals(set, row.set === undefined ? [] : [row.set]);
  });
}
