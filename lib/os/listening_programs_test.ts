import { assertEquals } from "@std/assert";
import { parseListeningPrograms } from "./listening_programs.ts";

const OUTPUT = `\
tcp   LISTEN 0      8            0.0.0.0:179       0.0.0.0:*    users:(("bird",pid=812,fd=7))
tcp   LISTEN 0      8               [::]:179          [::]:*    users:(("bird",pid=812,fd=8))
tcp   LISTEN 0      128    127.0.0.1%lo:2024       0.0.0.0:*
u_str LISTEN 0      1000   /run/kube-relay-bird/bird.ctl 4711            * 0    users:(("bird",pid=812,fd=4))
some other text
`;

Deno.test("parseListeningPrograms() reads addresses, ports, paths and the programs that are shown", () => {
  const program = { name: "bird", pid: 812 };
  assertEquals([...parseListeningPrograms(OUTPUT)], [
    { address: "0.0.0.0:179", port: 179, program },
    { address: "[::]:179", port: 179, program },
    { address: "127.0.0.1%lo:2024", port: 2024 },
    { address: "/run/kube-relay-bird/bird.ctl", program },
  ]);
});
