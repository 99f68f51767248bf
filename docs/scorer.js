// Order of search results: decisions and laboratory notes come after the pages of the sidebar.
var Scorer = {
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, , , , score]) => score - (/^(adr\/|figures|measurements)/.test(page) ? 1000 : 0),
};
