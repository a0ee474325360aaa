import { assertEquals } from "@std/assert";
import { quoteWord, ruleText } from "./iptables_objects.ts";

Deno.test("quoteWord() leaves plain words alone and quotes all others", () => {
  const words = [
    ["KUBE-SVC-AQI2S6QIMU7PVVRP", "KUBE-SVC-AQI2S6QIMU7PVVRP"],
    ["[fd00::2]:80", "[fd00::2]:80"],
    ["0x00004000/0x00004000", "0x00004000/0x00004000"],
    ["", '""'],
    ["two words", '"two words"'],
    ['a "b" \\c', '"a \\"b\\" \\\\c"'],
    ["x\nCOMMIT\n*nat", '"x?COMMIT?*nat"'],
    ["tab\tand \x00", '"tab?and ?"'],
    ["#comment", '"#comment"'],
    ["'; reboot", '"\'; reboot"'],
    ["größe", '"gr??e"'],
  ] as const;
  for (const [word, quoted] of words) assertEquals(quoteWord(word), quoted);
});

Deno.test("ruleText() shortens a comment to the kernel's limit", () => {
  assertEquals(ruleText({ comment: "x".repeat(300) }), `-m comment --comment ${"x".repeat(255)}`);
});
