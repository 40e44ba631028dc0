// One section of the report at a time: the one that the address names. Without scripts all are shown.
const sections = [...document.querySelectorAll("main > section")];
function show() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const section = target?.closest("main > section") ?? sections[0];
  for (const each of sections) each.hidden = each !== section;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === "#" + section.id) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  if (target && target !== section) target.scrollIntoView();
  else scrollTo(0, 0);
}
addEventListener("hashchange", show);
show();
